// MXNet's example of that name: one program with one copy of the parameters, a thread for each picture, results in the order of
// the files. Pictures are PPM files of the model's input size (convert dog.jpg -resize 224x224! dog.ppm).
//   example_multi_threaded_inference MODEL PICTURE...      MODEL: prefix, prefix@epoch or directory of a checkpoint
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>

#include "shoal/shoal_engine.h"

static shoal_program* program;
static shoal_tensor_spec input = SHOAL_TENSOR_SPEC_INIT;
static shoal_preprocess preprocess = SHOAL_PREPROCESS_INIT;

static void check(shoal_status* failed) {
  if (failed) fprintf(stderr, "%s: %s\n", shoal_code_name(shoal_status_code(failed)), shoal_status_message(failed)), exit(1);
}

static shoal_tensor* read_picture(const char* path) {
  long high = input.dims[2], wide = input.dims[3], pixels = high * wide, height = 0, width = 0;
  shoal_tensor* tensor;
  check(shoal_tensor_create(SHOAL_FLOAT32, (int64_t[]){1, 3, high, wide}, 4, &tensor));
  float* numbers = shoal_tensor_data(tensor);
  FILE* file = fopen(path, "rb");
  if (!file) perror(path), exit(1);
  bool is_read = fscanf(file, "P6 %ld %ld 255%*c", &width, &height) == 2 && width == wide && height == high;
  for (long i = 0; is_read && i < 3 * pixels; ++i) {  // red, green, blue of a pixel become three planes, in the model's order
    const int byte = fgetc(file), channel = (int)(preprocess.order[0] == 'B' ? 2 - i % 3 : i % 3);
    numbers[channel * pixels + i / 3] = ((float)byte - preprocess.mean[channel]) * preprocess.scale[channel];
    is_read = byte != EOF;
  }
  if (!is_read) fprintf(stderr, "%s: is no PPM picture of %ld x %ld pixels\n", path, wide, high), exit(1);
  return fclose(file), tensor;
}

static int invoke(void* place) {  // in a thread: *place is the input, and then the scores
  shoal_tensor **tensor = place, *scores = NULL;
  check(shoal_program_invoke(program, tensor, 1, &scores, 1));
  shoal_tensor_free(*tensor);
  *tensor = scores;
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 3) return fprintf(stderr, "usage: %s MODEL PICTURE...\n", argv[0]), 2;
  const char *keys[] = {"data_indices", "static_alloc", "static_shape"}, *values[] = {"[0]", "true", "true"};
  const shoal_program_options options = {sizeof options, .keys = keys, .values = values, .flag_count = 3};
  shoal_model_info* info;
  check(shoal_program_load(argv[1], &options, &program));
  check(shoal_program_describe(program, &info));
  check(shoal_model_info_input(info, 0, &input));
  check(shoal_model_info_preprocess(info, &preprocess));
  if (input.rank != 4 || preprocess.channel_count != 3) return fprintf(stderr, "%s: takes no color pictures\n", argv[1]), 1;
  thrd_t threads[argc];
  shoal_tensor* tensors[argc];
  for (int i = 2; i < argc; ++i) tensors[i] = read_picture(argv[i]);
  for (int i = 2; i < argc; ++i)
    if (thrd_create(&threads[i], invoke, &tensors[i]) != thrd_success) return fprintf(stderr, "no more threads\n"), 1;
  for (int i = 2; i < argc; ++i) {
    thrd_join(threads[i], NULL);
    const float* scores = shoal_tensor_data(tensors[i]);
    size_t best = 0;
    for (size_t k = 1; k < (size_t)shoal_tensor_element_count(tensors[i]); ++k) best = scores[k] > scores[best] ? k : best;
    printf("%s: %s (%.4f)\n", argv[i], shoal_model_info_label(info, best), (double)scores[best]);
    shoal_tensor_free(tensors[i]);
  }
  shoal_model_info_free(info);
  shoal_program_free(program);
  return 0;
}
