// The C functions: they check what programs pass, and call Predictor and ArrayList.
#include <mxnet/c_predict_api.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>

#include "client/predict/src/array_list.hpp"
#include "client/predict/src/c_arguments.hpp"
#include "client/predict/src/c_call.hpp"
#include "client/predict/src/given_model.hpp"
#include "client/predict/src/loaded_models.hpp"
#include "client/predict/src/local_model.hpp"
#include "client/predict/src/per_process.hpp"
#include "client/predict/src/pooled_model.hpp"
#include "client/predict/src/predictor.hpp"
#include "shm/base/errors.hpp"

namespace shoal::predict {
namespace {

enum class Kind : std::uint64_t { kPredictor = 0x7265746369646572, kList = 0x7473696c79617272 };

/// What a handle points to. The first word tells the two kinds of handles apart.
template <Kind kind_of_handle, typename T>
struct Handle {
  static constexpr Kind kKind = kind_of_handle;
  const Kind kind = kKind;
  T object;
};
using PredictorObject = Handle<Kind::kPredictor, std::unique_ptr<Predictor>>;
using ListObject = Handle<Kind::kList, ArrayList>;

template <typename H>
Result<H*> handle_of(void* handle) {
  SHOAL_RETURN_IF_ERROR(check_pointer("handle", handle));
  if (*static_cast<const Kind*>(handle) != H::kKind)
    return invalid_argument("handle is not {}", H::kKind == Kind::kPredictor ? "a PredictorHandle" : "an NDListHandle");
  return static_cast<H*>(handle);
}

Result<Predictor*> predictor_of(PredictorHandle handle) {
  SHOAL_ASSIGN_OR_RETURN(PredictorObject* const found, handle_of<PredictorObject>(handle));
  return found->object.get();
}

/// The arguments of the four functions that make predictors.
struct CreateArguments {
  const char* symbol_json;
  const void* param_bytes;
  int param_size, dev_type;
  ShapeArguments shapes;
  TypeArguments types = {};
  OutputArguments outputs = {};
  int predictors = 1;
};

///   predictors  how many divide the cores
Result<std::shared_ptr<SharedModel>> share_model(GivenModel given, const ModelArguments& arguments, int predictors) {
  if (const char* const name = std::getenv("SHOAL_PREDICT_MODEL"); name != nullptr && *name != '\0')
    return use_pooled_model(std::move(given), name, arguments.outputs.empty());
  const int cores = std::max(cores_of_this_thread() / predictors, 1);
  LoadedModels& models = per_process<LoadedModels>();
  ModelKey key{.symbol = models.digest(std::as_bytes(std::span(arguments.symbol_json))),
               .parameters = models.digest(arguments.parameters),
               .symbol_bytes = arguments.symbol_json.size(),
               .parameter_bytes = arguments.parameters.size(),
               .outputs = arguments.outputs,
               .cores = cores};
  for (const TensorSpec& input : given.inputs) key.inputs.emplace_back(input.name, input.dtype);
  return models.get(key, [&] { return load_local_model(std::move(given), cores); });
}

Predictor::Ignored ignored_by(const GivenModel& model, const std::vector<TensorSpec>& shapes) {
  Predictor::Ignored ignored{model.import.graph.ignored_inputs, {}};
  for (const TensorSpec& given : shapes) {
    if (std::ranges::count(model.inputs, given.name, &TensorSpec::name) == 0) ignored.others.push_back(given.name);
  }
  return ignored;
}

Status create(const CreateArguments& arguments, PredictorHandle* out) {
  SHOAL_RETURN_IF_ERROR(check_pointer("out", out));
  if (arguments.predictors < 1) return invalid_argument("num_threads is {}", arguments.predictors);
  const std::span handles(out, static_cast<std::size_t>(arguments.predictors));
  std::ranges::fill(handles, nullptr);
  SHOAL_RETURN_IF_ERROR(check_pointer("symbol_json_str", arguments.symbol_json));
  SHOAL_RETURN_IF_ERROR(check_device(arguments.dev_type));
  ModelArguments model_arguments{.symbol_json = arguments.symbol_json, .parameters = {}, .shapes = {}};
  SHOAL_ASSIGN_OR_RETURN(model_arguments.parameters, bytes_of("param_bytes", arguments.param_bytes, arguments.param_size));
  SHOAL_ASSIGN_OR_RETURN(model_arguments.shapes, shapes_of(arguments.shapes));
  SHOAL_ASSIGN_OR_RETURN(model_arguments.types, types_of(arguments.types));
  SHOAL_ASSIGN_OR_RETURN(model_arguments.outputs, outputs_of(arguments.outputs));

  SHOAL_ASSIGN_OR_RETURN(GivenModel given, read_model(model_arguments));
  const Predictor::Ignored ignored = ignored_by(given, model_arguments.shapes);
  const std::vector<TensorSpec> inputs = given.inputs;
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<SharedModel> model,
                         share_model(std::move(given), model_arguments, arguments.predictors));
  std::vector<std::unique_ptr<PredictorObject>> made;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    SHOAL_ASSIGN_OR_RETURN(auto predictor, Predictor::make(model, inputs, ignored));
    made.push_back(std::make_unique<PredictorObject>(PredictorObject{.object = std::move(predictor)}));
  }
  std::ranges::transform(made, handles.begin(), [](auto& each) { return each.release(); });
  return {};
}

}  // namespace
}  // namespace shoal::predict

using namespace shoal;           // NOLINT(google-build-using-namespace): the functions below are in none
using namespace shoal::predict;  // NOLINT(google-build-using-namespace)

extern "C" {

const char* MXGetLastError() { return last_error(); }

int MXPredCreate(const char* symbol_json_str, const void* param_bytes, int param_size, int dev_type, int /*dev_id*/,
                 uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                 const uint32_t* input_shape_data, PredictorHandle* out) {
  return c_call("MXPredCreate", [&] {
    const ShapeArguments shapes{num_input_nodes, input_keys, input_shape_indptr, input_shape_data};
    return create({symbol_json_str, param_bytes, param_size, dev_type, shapes}, out);
  });
}

int MXPredCreateEx(const char* symbol_json_str, const void* param_bytes, int param_size, int dev_type, int /*dev_id*/,
                   const uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                   const uint32_t* input_shape_data, const uint32_t num_provided_arg_dtypes,
                   const char** provided_arg_dtype_names, const int* provided_arg_dtypes, PredictorHandle* out) {
  return c_call("MXPredCreateEx", [&] {
    const ShapeArguments shapes{num_input_nodes, input_keys, input_shape_indptr, input_shape_data};
    return create({.symbol_json = symbol_json_str,
                   .param_bytes = param_bytes,
                   .param_size = param_size,
                   .dev_type = dev_type,
                   .shapes = shapes,
                   .types = {num_provided_arg_dtypes, provided_arg_dtype_names, provided_arg_dtypes}},
                  out);
  });
}

int MXPredCreatePartialOut(const char* symbol_json_str, const void* param_bytes, int param_size, int dev_type, int /*dev_id*/,
                           uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                           const uint32_t* input_shape_data, uint32_t num_output_nodes, const char** output_keys,
                           PredictorHandle* out) {
  return c_call("MXPredCreatePartialOut", [&] {
    const ShapeArguments shapes{num_input_nodes, input_keys, input_shape_indptr, input_shape_data};
    return create({.symbol_json = symbol_json_str,
                   .param_bytes = param_bytes,
                   .param_size = param_size,
                   .dev_type = dev_type,
                   .shapes = shapes,
                   .outputs = {num_output_nodes, output_keys}},
                  out);
  });
}

int MXPredCreateMultiThread(const char* symbol_json_str, const void* param_bytes, int param_size, int dev_type, int /*dev_id*/,
                            uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                            const uint32_t* input_shape_data, int num_threads, PredictorHandle* out) {
  return c_call("MXPredCreateMultiThread", [&] {
    const ShapeArguments shapes{num_input_nodes, input_keys, input_shape_indptr, input_shape_data};
    return create({.symbol_json = symbol_json_str,
                   .param_bytes = param_bytes,
                   .param_size = param_size,
                   .dev_type = dev_type,
                   .shapes = shapes,
                   .predictors = num_threads},
                  out);
  });
}

int MXPredReshape(uint32_t num_input_nodes, const char** input_keys, const uint32_t* input_shape_indptr,
                  const uint32_t* input_shape_data, PredictorHandle handle, PredictorHandle* out) {
  return c_call("MXPredReshape", [&]() -> Status {
    SHOAL_RETURN_IF_ERROR(check_pointer("out", out));
    *out = nullptr;
    SHOAL_ASSIGN_OR_RETURN(const Predictor* const predictor, predictor_of(handle));
    SHOAL_ASSIGN_OR_RETURN(const auto shapes, shapes_of({num_input_nodes, input_keys, input_shape_indptr, input_shape_data}));
    SHOAL_ASSIGN_OR_RETURN(auto reshaped, predictor->reshape(shapes));
    *out = new PredictorObject{.object = std::move(reshaped)};
    return {};
  });
}

int MXPredGetOutputShape(PredictorHandle handle, uint32_t index, uint32_t** shape_data, uint32_t* shape_ndim) {
  return c_call("MXPredGetOutputShape", [&]() -> Status {
    SHOAL_RETURN_IF_ERROR(check_pointer("shape_data", shape_data));
    SHOAL_RETURN_IF_ERROR(check_pointer("shape_ndim", shape_ndim));
    SHOAL_ASSIGN_OR_RETURN(Predictor* const predictor, predictor_of(handle));
    SHOAL_ASSIGN_OR_RETURN(const std::span<std::uint32_t> shape, predictor->output_shape(index));
    *shape_data = shape.data();
    *shape_ndim = static_cast<std::uint32_t>(shape.size());
    return {};
  });
}

int MXPredGetOutputType(PredictorHandle handle, uint32_t out_index, int* out_dtype) {
  return c_call("MXPredGetOutputType", [&]() -> Status {
    SHOAL_RETURN_IF_ERROR(check_pointer("out_dtype", out_dtype));
    SHOAL_ASSIGN_OR_RETURN(const Predictor* const predictor, predictor_of(handle));
    SHOAL_ASSIGN_OR_RETURN(const DType dtype, predictor->output_type(out_index));
    *out_dtype = flag_of(dtype);
    return {};
  });
}

int MXPredSetInput(PredictorHandle handle, const char* key, const float* data, uint32_t size) {
  return c_call("MXPredSetInput", [&]() -> Status {
    SHOAL_RETURN_IF_ERROR(check_pointer("key", key));
    SHOAL_RETURN_IF_ERROR(check_pointer("data", data));
    SHOAL_ASSIGN_OR_RETURN(Predictor* const predictor, predictor_of(handle));
    return predictor->set_input(key, data, size);
  });
}

int MXPredForward(PredictorHandle handle) {
  return c_call("MXPredForward", [&]() -> Status {
    SHOAL_ASSIGN_OR_RETURN(Predictor* const predictor, predictor_of(handle));
    return predictor->run();
  });
}

int MXPredPartialForward(PredictorHandle handle, int step, int* step_left) {
  return c_call("MXPredPartialForward", [&]() -> Status {
    SHOAL_RETURN_IF_ERROR(check_pointer("step_left", step_left));
    if (step < 0) return invalid_argument("step is {}", step);
    SHOAL_ASSIGN_OR_RETURN(Predictor* const predictor, predictor_of(handle));
    if (step == 0) SHOAL_RETURN_IF_ERROR(predictor->run());
    *step_left = 0;
    return {};
  });
}

int MXPredGetOutput(PredictorHandle handle, uint32_t index, float* data, uint32_t size) {
  return c_call("MXPredGetOutput", [&]() -> Status {
    SHOAL_RETURN_IF_ERROR(check_pointer("data", data));
    SHOAL_ASSIGN_OR_RETURN(const Predictor* const predictor, predictor_of(handle));
    return predictor->copy_output(index, data, size);
  });
}

int MXPredFree(PredictorHandle handle) {
  return c_call("MXPredFree", [&]() -> Status {
    if (handle == nullptr) return {};
    SHOAL_ASSIGN_OR_RETURN(PredictorObject* const predictor, handle_of<PredictorObject>(handle));
    delete predictor;
    return {};
  });
}

int MXNDListCreate(const char* nd_file_bytes, int nd_file_size, NDListHandle* out, uint32_t* out_length) {
  return c_call("MXNDListCreate", [&]() -> Status {
    SHOAL_RETURN_IF_ERROR(check_pointer("out", out));
    SHOAL_RETURN_IF_ERROR(check_pointer("out_length", out_length));
    *out = nullptr;
    *out_length = 0;
    SHOAL_ASSIGN_OR_RETURN(const auto bytes, bytes_of("nd_file_bytes", nd_file_bytes, nd_file_size));
    SHOAL_ASSIGN_OR_RETURN(ArrayList list, ArrayList::read(bytes));
    const auto length = static_cast<std::uint32_t>(list.size());
    *out = new ListObject{.object = std::move(list)};
    *out_length = length;
    return {};
  });
}

int MXNDListGet(NDListHandle handle, uint32_t index, const char** out_key, const float** out_data, const uint32_t** out_shape,
                uint32_t* out_ndim) {
  return c_call("MXNDListGet", [&]() -> Status {
    SHOAL_RETURN_IF_ERROR(check_pointer("out_key", out_key));
    SHOAL_RETURN_IF_ERROR(check_pointer("out_data", out_data));
    SHOAL_RETURN_IF_ERROR(check_pointer("out_shape", out_shape));
    SHOAL_RETURN_IF_ERROR(check_pointer("out_ndim", out_ndim));
    SHOAL_ASSIGN_OR_RETURN(const ListObject* const list, handle_of<ListObject>(handle));
    SHOAL_ASSIGN_OR_RETURN(const ArrayList::Array* const array, list->object.at(index));
    *out_key = array->name.c_str();
    *out_data = array->values.data();
    *out_shape = array->shape.data();
    *out_ndim = static_cast<std::uint32_t>(array->shape.size());
    return {};
  });
}

int MXNDListFree(NDListHandle handle) {
  return c_call("MXNDListFree", [&]() -> Status {
    if (handle == nullptr) return {};
    SHOAL_ASSIGN_OR_RETURN(ListObject* const list, handle_of<ListObject>(handle));
    delete list;
    return {};
  });
}

}  // extern "C"
