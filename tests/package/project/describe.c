// What a checkpoint is, in C and without a daemon.
#include <shoal/shoal_engine.h>
#include <stdio.h>

int main(int argc, char** argv) {
  shoal_program* program = NULL;
  shoal_model_info* info = NULL;
  shoal_status* failed = argc == 2 ? shoal_program_load(argv[1], NULL, &program) : NULL;
  if (!failed) failed = shoal_program_describe(program, &info);
  if (failed) return fprintf(stderr, "%s\n", shoal_status_message(failed)), 1;
  printf("%s: %zu input, %zu output, %zu labels\n", shoal_model_info_name(info), shoal_model_info_input_count(info),
         shoal_model_info_output_count(info), shoal_model_info_label_count(info));
  shoal_model_info_free(info);
  shoal_program_free(program);
  return 0;
}
