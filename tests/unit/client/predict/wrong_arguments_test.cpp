// Wrong arguments are refused, and the message names them. Damaged bytes crash nothing.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/unit/client/predict/predict_fixture.hpp"

namespace shoal::test {
namespace {

/// The arguments of MXPredCreate() and its kin, all right at first.
struct Arguments {
  const char* symbol = decimal().symbol.c_str();
  const void* params = decimal().params.data();
  int size = static_cast<int>(decimal().params.size());
  int device = 1;
  std::uint32_t inputs = 1;
  std::vector<const char*> keys{"data"};
  std::vector<std::uint32_t> indptr{0, 2}, data{1, 4};
  bool has_keys = true, has_indptr = true, has_data = true, has_out = true;
  std::vector<const char*> outputs{"plus"};
  int threads = 1;

  PredictorHandle out = &out;  // not null, and no handle

  using Function = std::function<int(Arguments&)>;
  const char** key_list() { return has_keys ? keys.data() : nullptr; }
  const std::uint32_t* indptr_list() const { return has_indptr ? indptr.data() : nullptr; }
  const std::uint32_t* data_list() const { return has_data ? data.data() : nullptr; }
  PredictorHandle* out_place() { return has_out ? &out : nullptr; }
};

struct Case {
  const char* what;
  std::function<void(Arguments&)> spoil;
  std::vector<std::string_view> words;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"no symbol", [](auto& a) { a.symbol = nullptr; }, {"symbol_json_str", "NULL"}},
      {"no JSON", [](auto& a) { a.symbol = "{"; }, {"symbol_json_str", "offset 1"}},
      {"no graph", [](auto& a) { a.symbol = "{}"; }, {"symbol_json_str", "nodes"}},
      {"no parameters", [](auto& a) { a.params = nullptr; }, {"param_bytes", "NULL"}},
      {"a negative size", [](auto& a) { a.size = -1; }, {"param_bytes", "-1"}},
      {"an empty file", [](auto& a) { a.size = 0; }, {"param_bytes", "offset 0"}},
      {"half a file", [](auto& a) { a.size /= 2; }, {"param_bytes", "truncated"}},
      {"an unknown device", [](auto& a) { a.device = 0; }, {"dev_type", "0"}},
      {"no keys", [](auto& a) { a.has_keys = false; }, {"input_keys", "NULL"}},
      {"a key that is NULL", [](auto& a) { a.keys[0] = nullptr; }, {"input_keys[0]", "NULL"}},
      {"no indptr", [](auto& a) { a.has_indptr = false; }, {"input_shape_indptr", "NULL"}},
      {"no shape data", [](auto& a) { a.has_data = false; }, {"input_shape_data", "NULL"}},
      {"indptr that falls",
       [](auto& a) {
         a.indptr = {2, 1};
       },
       {"input_shape_indptr[1]", "data"}},
      {"no dimensions",
       [](auto& a) {
         a.indptr = {0, 0};
       },
       {"input_shape_indptr[1]", "data"}},
      {"too many dimensions",
       [](auto& a) {
         a.indptr = {0, 9};
       },
       {"data", "9", "8"}},
      {"a dimension of 0",
       [](auto& a) {
         a.data = {1, 0};
       },
       {"dimension 1", "data"}},
      {"an input twice",
       [](auto& a) {
         a.inputs = 2;
         a.keys = {"data", "data"};
         a.indptr = {0, 2, 4};
         a.data = {1, 4, 1, 4};
       },
       {"data", "twice"}},
      {"a shape that does not fit",
       [](auto& a) {
         a.data = {1, 5};
       },
       {"scaled", "5", "4"}},
      {"too large a shape",
       [](auto& a) {
         a.data = {0xffffffff, 0xffffffff};
       },
       {"data", "too large"}},
      {"nowhere to go", [](auto& a) { a.has_out = false; }, {"out", "NULL"}},
  };
  return all;
}

/// Each case fails by the function, its message has the words and the function's name, and no handle is left in *out.
void expect_refusals(const char* name, const Arguments::Function& call) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.what);
    Arguments arguments;
    each.spoil(arguments);
    ASSERT_EQ(call(arguments), -1);
    for (const std::string_view word : each.words) EXPECT_TRUE(error_says({name, word}));
    EXPECT_TRUE(!arguments.has_out || arguments.out == nullptr);
  }
  Arguments right;
  ASSERT_EQ(call(right), 0) << MXGetLastError();
  EXPECT_EQ(MXPredFree(right.out), 0);
}

TEST(WrongArguments, AreNamedByMXPredCreate) {
  expect_refusals("MXPredCreate", [](Arguments& a) {
    return MXPredCreate(a.symbol, a.params, a.size, a.device, 0, a.inputs, a.key_list(), a.indptr_list(), a.data_list(),
                        a.out_place());
  });
}

TEST(WrongArguments, AreNamedByMXPredCreateEx) {
  expect_refusals("MXPredCreateEx", [](Arguments& a) {
    return MXPredCreateEx(a.symbol, a.params, a.size, a.device, 0, a.inputs, a.key_list(), a.indptr_list(), a.data_list(), 0,
                          nullptr, nullptr, a.out_place());
  });
  Arguments a;
  const char* names[] = {"data", nullptr};
  const int types[] = {0, 0};
  const auto call = [&](const char** given, const int* flags, std::uint32_t count) {
    return MXPredCreateEx(a.symbol, a.params, a.size, 1, 0, 1, a.key_list(), a.indptr_list(), a.data_list(), count, given, flags,
                          a.out_place());
  };
  EXPECT_EQ(call(nullptr, types, 1), -1);
  EXPECT_TRUE(error_says({"provided_arg_dtype_names", "NULL"}));
  EXPECT_EQ(call(names, types, 2), -1);
  EXPECT_TRUE(error_says({"provided_arg_dtype_names[1]", "NULL"}));
  EXPECT_EQ(call(names, nullptr, 1), -1);
  EXPECT_TRUE(error_says({"provided_arg_dtypes", "NULL"}));
}

TEST(WrongArguments, AreNamedByMXPredCreatePartialOut) {
  expect_refusals("MXPredCreatePartialOut", [](Arguments& a) {
    return MXPredCreatePartialOut(a.symbol, a.params, a.size, a.device, 0, a.inputs, a.key_list(), a.indptr_list(), a.data_list(),
                                  1, a.outputs.data(), a.out_place());
  });
  Arguments a;
  const auto call = [&](const char** outputs) {
    return MXPredCreatePartialOut(a.symbol, a.params, a.size, 1, 0, 1, a.key_list(), a.indptr_list(), a.data_list(), 1, outputs,
                                  a.out_place());
  };
  EXPECT_EQ(call(nullptr), -1);
  EXPECT_TRUE(error_says({"output_keys", "NULL"}));
  const char* none[] = {nullptr};
  EXPECT_EQ(call(none), -1);
  EXPECT_TRUE(error_says({"output_keys[0]", "NULL"}));
}

TEST(WrongArguments, AreNamedByMXPredCreateMultiThread) {
  expect_refusals("MXPredCreateMultiThread", [](Arguments& a) {
    return MXPredCreateMultiThread(a.symbol, a.params, a.size, a.device, 0, a.inputs, a.key_list(), a.indptr_list(),
                                   a.data_list(), a.threads, a.out_place());
  });
  for (const int threads : {0, -1}) {
    Arguments a;
    EXPECT_EQ(MXPredCreateMultiThread(a.symbol, a.params, a.size, 1, 0, 1, a.key_list(), a.indptr_list(), a.data_list(), threads,
                                      a.out_place()),
              -1);
    EXPECT_TRUE(error_says({"num_threads", std::to_string(threads)}));
  }
}

TEST(WrongArguments, AreNamedByMXPredReshape) {
  const PredictorPtr predictor = create(decimal(), {{"data", {1, 4}}});
  const auto call = [&](Arguments& a, PredictorHandle handle) {
    return MXPredReshape(a.inputs, a.key_list(), a.indptr_list(), a.data_list(), handle, a.out_place());
  };
  for (const Case& each : cases()) {
    Arguments a;
    each.spoil(a);
    if (call(a, predictor.get()) == 0) {  // one of the arguments that this function does not have
      EXPECT_EQ(MXPredFree(a.out), 0);
      continue;
    }
    SCOPED_TRACE(each.what);
    for (const std::string_view word : each.words) EXPECT_TRUE(error_says({"MXPredReshape", word}));
    EXPECT_TRUE(!a.has_out || a.out == nullptr);
  }
  Arguments a;
  EXPECT_EQ(call(a, nullptr), -1);
  EXPECT_TRUE(error_says({"MXPredReshape", "handle", "NULL"}));
}

TEST(WrongArguments, AreNamedByFunctionsOfAPredictor) {
  const PredictorPtr predictor = create(decimal(), {{"data", {1, 4}}});
  const PredictorHandle handle = predictor.get();
  float values[5] = {};
  std::uint32_t* shape = nullptr;
  std::uint32_t rank = 0;
  int number = 0;
  const auto refuses = [](int result, std::initializer_list<std::string_view> words) {
    EXPECT_EQ(result, -1);
    return error_says(words);
  };
  EXPECT_TRUE(refuses(MXPredGetOutputShape(nullptr, 0, &shape, &rank), {"MXPredGetOutputShape", "handle"}));
  EXPECT_TRUE(refuses(MXPredGetOutputShape(handle, 1, &shape, &rank), {"no output 1"}));
  EXPECT_TRUE(refuses(MXPredGetOutputShape(handle, 0, nullptr, &rank), {"shape_data"}));
  EXPECT_TRUE(refuses(MXPredGetOutputShape(handle, 0, &shape, nullptr), {"shape_ndim"}));
  EXPECT_TRUE(refuses(MXPredGetOutputType(nullptr, 0, &number), {"MXPredGetOutputType", "handle"}));
  EXPECT_TRUE(refuses(MXPredGetOutputType(handle, 1, &number), {"no output 1"}));
  EXPECT_TRUE(refuses(MXPredGetOutputType(handle, 0, nullptr), {"out_dtype"}));
  EXPECT_TRUE(refuses(MXPredSetInput(nullptr, "data", values, 4), {"MXPredSetInput", "handle"}));
  EXPECT_TRUE(refuses(MXPredSetInput(handle, nullptr, values, 4), {"key"}));
  EXPECT_TRUE(refuses(MXPredSetInput(handle, "data", nullptr, 4), {"data"}));
  EXPECT_TRUE(refuses(MXPredSetInput(handle, "dato", values, 4), {"dato", "data"}));
  EXPECT_TRUE(refuses(MXPredSetInput(handle, "data", values, 5), {"data", "1x4", "4", "5"}));
  EXPECT_TRUE(refuses(MXPredSetInput(handle, "data", values, 3), {"data", "1x4", "4", "3"}));
  EXPECT_TRUE(refuses(MXPredForward(nullptr), {"MXPredForward", "handle"}));
  EXPECT_TRUE(refuses(MXPredPartialForward(nullptr, 0, &number), {"MXPredPartialForward", "handle"}));
  EXPECT_TRUE(refuses(MXPredPartialForward(handle, 0, nullptr), {"step_left"}));
  forward(predictor);
  EXPECT_TRUE(refuses(MXPredGetOutput(nullptr, 0, values, 4), {"MXPredGetOutput", "handle"}));
  EXPECT_TRUE(refuses(MXPredGetOutput(handle, 1, values, 4), {"no output 1"}));
  EXPECT_TRUE(refuses(MXPredGetOutput(handle, 0, nullptr, 4), {"data"}));
  EXPECT_TRUE(refuses(MXPredGetOutput(handle, 0, values, 5), {"plus_output", "1x4", "4", "5"}));
  EXPECT_EQ(MXPredFree(nullptr), 0);
  EXPECT_EQ(MXNDListFree(nullptr), 0);
}

TEST(WrongArguments, AHandleOfTheOtherKindIsRefused) {
  const PredictorPtr predictor = create(decimal(), {{"data", {1, 4}}});
  NDListHandle list = nullptr;
  std::uint32_t length = 0;
  ASSERT_EQ(MXNDListCreate(decimal().params.data(), static_cast<int>(decimal().params.size()), &list, &length), 0);
  EXPECT_EQ(MXPredForward(list), -1);
  EXPECT_TRUE(error_says({"handle", "PredictorHandle"}));
  EXPECT_EQ(MXPredFree(list), -1);
  EXPECT_EQ(MXNDListFree(predictor.get()), -1);
  EXPECT_TRUE(error_says({"handle", "NDListHandle"}));
  EXPECT_EQ(MXNDListFree(list), 0);
}

TEST(DamagedBytes, GivePredictorsThatRunOrErrors) {
  std::mt19937 random(7);
  int made = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    Checkpoint damaged = decimal();
    std::string& bytes = round % 2 == 0 ? damaged.params : damaged.symbol;
    bytes[random() % bytes.size()] ^= static_cast<char>(1u << (random() % 8));
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    const PredictorPtr predictor = try_create(damaged, {{"data", {1, 4}}});
    predictor ? ++made : ++refused;
    if (!predictor) {
      EXPECT_TRUE(error_says({"MXPredCreate: "}));
    } else {
      EXPECT_EQ(MXPredForward(predictor.get()), 0) << MXGetLastError();
    }
  }
  EXPECT_GT(made, 0) << "a bit of a weight is no damage";
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace shoal::test
