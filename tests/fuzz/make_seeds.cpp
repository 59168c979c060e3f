// Writes DIRECTORY/TARGET/*: the inputs that each fuzzer starts with, made by our own encoders. Aborts when a reader refuses a
// seed that should be good, because a fuzzer that starts with refused inputs finds little else.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "client/src/description.hpp"
#include "shm/model/model_config.hpp"
#include "shm/wire/control.hpp"
#include "shm/wire/messages.hpp"
#include "shm/wire/model_json.hpp"
#include "supervisor/repository/model_text.hpp"
#include "tests/fuzz/packets.hpp"
#include "tests/unit/worker/import/mxnet/array_files.hpp"
#include "worker/import/mxnet/mxnet_importer.hpp"
#include "worker/import/mxnet/mxnet_params.hpp"
#include "worker/import/npz.hpp"
#include "worker/zygote/load_message.hpp"

namespace shoal {
namespace {

using Bytes = std::vector<std::byte>;

void expect_good(const std::string& seed, const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "make-fuzz-seeds: seed %s: %s\n", seed.c_str(), status.to_string().c_str());
  std::abort();
}

worker::ForeignFile file_of(const std::string& name, const std::string& bytes) {
  return {name, std::as_bytes(std::span(bytes)), nullptr};
}

class SeedWriter {
 public:
  explicit SeedWriter(std::filesystem::path directory) : directory_(std::move(directory)) {}
  void write(const std::string& target, const std::string& name, std::span<const std::byte> bytes) const {
    std::filesystem::create_directories(directory_ / target);
    std::ofstream(directory_ / target / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void write(const std::string& target, const std::string& name, std::string_view text) const {
    write(target, name, std::as_bytes(std::span(text)));
  }

 private:
  std::filesystem::path directory_;
};

Bytes message(std::initializer_list<std::span<const std::byte>> frames) {
  Bytes data;
  for (const auto frame : frames) fuzz::append_packet(data, frame);
  return data;
}

// A request with 4 floats, for the lane of wire_fuzzer.cpp.
Bytes request(wire::Location location, std::uint64_t capacity_bytes) {
  wire::Request request;
  request.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kRequest),
                    .seq = 1,
                    .model_id = 1,
                    .signature = 1,
                    .client_id = 1,
                    .request_id = 1,
                    .incarnation = 1,
                    .attempt = 1};
  wire::WireTensor input = wire::to_wire({DType::kFloat32, Shape{2, 2}, nullptr});
  input.location = static_cast<std::uint8_t>(location);
  input.offset_bytes = 128;
  wire::WireTensor slot{};
  slot.offset_bytes = 64;
  slot.capacity_bytes = capacity_bytes;
  request.inputs = {input};
  request.outputs = {slot};
  Bytes frame;
  wire::encode_request(request, frame);
  return frame;
}

Bytes reply() {
  wire::Reply reply;
  reply.header = {.kind = static_cast<std::uint16_t>(wire::Kind::kReply), .seq = 1, .request_id = 1, .ran = 2, .released = 1};
  reply.outputs = {wire::to_wire({DType::kInt64, Shape{1, 3}, nullptr})};
  Bytes frame;
  wire::encode_reply(reply, frame);
  return frame;
}

void write_wire_seeds(const SeedWriter& seeds) {
  const float values[4] = {1, 2, 3, 4};
  seeds.write("wire", "arena", message({request(wire::Location::kArena, 64)}));
  seeds.write("wire", "spill", message({request(wire::Location::kArena, 0)}));
  seeds.write("wire", "frame", message({request(wire::Location::kFrame, 64), std::as_bytes(std::span(values))}));
  seeds.write("wire", "reply", message({reply()}));
  for (const wire::Kind kind : {wire::Kind::kControl, wire::Kind::kWelcome}) {
    const wire::ControlHeader header = wire::make_control(kind, 7);
    seeds.write(
        "wire", "control-" + std::to_string(static_cast<int>(kind)),
        message({std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(std::string_view(R"({"what": "list"})")))}));
  }
}

// The byte that chooses descriptors, and the packet that send_control() makes.
Bytes packet(std::uint8_t choice, const wire::ControlMessage& control) {
  const wire::ControlPair pair = wire::make_control_pair().value();
  if (!wire::send_control(pair.ours.get(), control).ok()) std::abort();
  Bytes bytes(1 + 256);
  bytes[0] = std::byte{choice};
  bytes.resize(1 + static_cast<std::size_t>(::read(pair.theirs.get(), bytes.data() + 1, bytes.size() - 1)));
  return bytes;
}

// As above. The first of the fuzzer's descriptors are a socket and two arenas.
Bytes attach_with(std::uint8_t descriptors, const wire::ControlMessage& message = {.kind = wire::ControlKind::kAttach}) {
  constexpr std::size_t kDescriptorCountAt = 1 + 36;  // control.cpp, Header::fd_count
  Bytes bytes = packet(descriptors, message);
  bytes.at(kDescriptorCountAt) = std::byte{descriptors};
  return bytes;
}

void write_attach_seeds(const SeedWriter& seeds) {
  const Bytes bound = packet(0, {.kind = wire::ControlKind::kBound});
  seeds.write("attach", "tool", message({attach_with(1), bound}));
  seeds.write("attach", "client", message({attach_with(3), bound}));
  seeds.write("attach", "twice", message({attach_with(3), attach_with(3)}));
  seeds.write("attach", "text", message({attach_with(1, {.kind = wire::ControlKind::kAttach, .id = 1, .text = "hello"})}));
}

void write_control_seeds(const SeedWriter& seeds) {
  ServedModel model{.name = "echo", .path = "builtin:identity", .files = {}, .config = {}, .labels = {"cat", "dog"}};
  model.config.inputs = {{"data", DType::kFloat32, Shape{-1, 3, -1, 224}, {{1, 64}, {3, 3}, {32, 224}, {224, 224}}}};
  model.config.shapes = {{{"data", DType::kFloat32, Shape{1, 3, 224, 224}}}};
  model.config.buckets = {{.sizes = {1, 2, 4}}, {.input = "data", .dim = 2, .sizes = {64, 224}, .crop = {{"data_output", 2}}}};
  model.config.preprocess = preprocess_preset("imagenet").value();
  const supervisor::LoadReport loaded{.inputs = model.config.inputs,
                                      .outputs = {{"data_output", DType::kFloat32, Shape{-1, 1000}}},
                                      .state = {{"data_output", "data", {-1, 1000}}},
                                      .ignored_inputs = {"softmax_label"},
                                      .fingerprint = "mxnet1:00ff"};
  const std::string load = wire::load_text(model).value();
  expect_good("load", worker::parse_load(load).status());
  seeds.write("control", "load", load);
  seeds.write("control", "describe", supervisor::describe_text(model, loaded, 1, {1}));
  const std::string said = R"({"inputs": [{"name": "data", "dtype": "float32", "shape": [-1, 4]}], "outputs": [],
    "state": [{"out": "h_out", "in": "h_in", "shape": [-1, 4]}], "ignored_inputs": ["label"], "warnings": ["w"], "hash": "00", "tuning": "read from a record", "fingerprint": "mxnet1:00ff",
    "packed_bytes": 1, "parameter_bytes": 2, "arena_bytes": 3})";
  expect_good("loaded", supervisor::parse_loaded(said).status());
  seeds.write("control", "loaded", said);
  seeds.write("control", "list", R"({"models": [{"name": "a", "version": 1, "state": "ready"}, "b"]})");
  seeds.write("control", "error", R"({"message": "no model 'a'"})");
  seeds.write("control", "ask", client::control_json("describe", "echo"));
}

void write_config_seeds(const SeedWriter& seeds) {
  constexpr std::string_view kModel = R"(
inputs = [{name = "data", shape = ["1..64", 3, "32..224", -1], dtype = "float32", layout = "NCHW"}]
outputs = ["softmax_output"]
state = [{out = "h_output", in = "h_in", shape = [-1, 8]}]
labels = "synset.txt"
device = "cpu"
workers = 4
contexts = 1
threads = 2
queue_limit = 64
timeout_ms = 500
precision = "f32-fast"
max_error = 0.02
tuning_ms = 100
import_mb = 64
cache_mb = 16
max_batch = 8
max_delay_ms = 0.5
run_limit_ms = 1000
memory_mb = 512
golden = "golden.npz"
golden_tolerance = 0.001
versions = "latest:2"
shapes = [{data = [1, 3, 224, 224]}, {data = [8, 3, 224, 224]}]
buckets = [{batch = [1, 2, 4]}, {input = "data", dim = 2, sizes = [64, 224], crop = {softmax_output = 1}}]
[preprocess]
preset = "imagenet"
resize = 256
crop = [224, 224]
order = "RGB"
mean = [1.0, 2.0, 3.0]
scale = [0.1, 0.1, 0.1]
letterbox = false
border = 9
)";
  const std::string toml = std::string(kModel), zero(1, '\0'), one(1, '\1'), two(1, '\2');
  expect_good("model", parse_model_config(toml, "model.toml").status());
  seeds.write("config", "model", zero + toml);
  seeds.write("config", "short", zero + "inputs = [{name = \"data\", shape = [-1, 4]}]\n");
  const std::string daemon = "[models.a]\npath = \"models/a\"\nworkers = 2\n[models.b]\npath = \"/b\"\n";
  expect_good("daemon", parse_daemon_config(daemon, "shoald.toml", "/etc/shoal").status());
  seeds.write("config", "daemon", one + daemon);
  const std::string argument =
      "a=models/a,workers=4,contexts=1,threads=2,device=cpu,queue_limit=64,timeout_ms=500,labels=FILE,preset=imagenet,"
      "cache_mb=64,buckets=1:2:4,precision=f32-fast,max_batch=8,input=data:?x3x32..224x224:float32,shape=data:4x3x224x224";
  expect_good("argument", parse_model_argument(argument).status());
  seeds.write("config", "argument", two + argument);
}

void write_params_seed(const SeedWriter& seeds, const std::string& name, const std::string& bytes) {
  worker::MemoryBudget budget{worker::ImportLimits()};
  expect_good(name, worker::parse_mxnet_params(file_of(name, bytes), budget).status());
  seeds.write("params", name, bytes);
}

void write_npz_seed(const SeedWriter& seeds, const std::string& name, const std::string& bytes) {
  worker::MemoryBudget budget{worker::ImportLimits()};
  expect_good(name, worker::parse_npz(file_of(name, bytes), budget).status());
  seeds.write("npz", name, bytes);
}

void write_array_seeds(const SeedWriter& seeds) {
  using namespace test;
  const std::string four = floats(4);
  for (const auto& [name, era] : {std::pair("v0", Era::kV0), {"v1", Era::kV1}, {"v2", Era::kV2}, {"v3", Era::kV3}}) {
    write_params_seed(seeds, name, list({record(era, {2, 2}, 0, four), record(era, {4}, 0, four)}, {"arg:a", "aux:b"}));
  }
  write_params_seed(seeds, "plain", list({record(Era::kV2, {4}, 0, four)}, {}));
  write_params_seed(seeds, "mixed", list({record(Era::kV1, {4}, 0, four), record(Era::kV2, {1, 4}, 0, four)}, {"a", "b"}));
  write_params_seed(seeds, "scalar", list({record(Era::kV3, {}, 0, floats(1)), record(Era::kV3, {0, 3}, 0, "")}, {"a", "b"}));
  write_params_seed(seeds, "sparse", list({sparse_record(1), sparse_record(2)}, {"a", "b"}));
  const std::string two = npy("<i8", "False", "(2,)", raw<std::int64_t>(0) + raw<std::int64_t>(2));
  const test::Member data{"a/data.npy", npy("<f4", "False", "(2,)", floats(2))};
  write_npz_seed(seeds, "csr",
                 archive({data,
                          {"a/indices.npy", two},
                          {"a/indptr.npy", two},
                          {"a/format.npy", "csr"},
                          {"a/shape.npy", npy("<i8", "False", "(2,)", raw<std::int64_t>(1) + raw<std::int64_t>(3))}})
                     .bytes);
  write_npz_seed(seeds, "row_sparse",
                 archive({data,
                          {"a/indices.npy", two},
                          {"a/format.npy", "row_sparse"},
                          {"a/shape.npy", npy("<i8", "False", "(1,)", raw<std::int64_t>(3))}})
                     .bytes);
  const std::string c = npy("<f4", "False", "(2, 2)", four), fortran = npy("<f4", "True", "(2, 2)", four);
  seeds.write("npz", "npy", c);
  write_npz_seed(seeds, "stored", archive({{"arg:a.npy", c}, {"b.npy", fortran}}).bytes);
  write_npz_seed(seeds, "deflated", archive({{"a.npy", c, true}, {"b.npy", npy("<i8", "False", "()", floats(2)), true}}).bytes);
  write_npz_seed(seeds, "streamed", archive({{"a.npy", c, true, true}}).bytes);
  write_npz_seed(seeds, "zip64", archive({{"a.npy", c, false, false, true}}, true).bytes);
  write_params_seed(seeds, "npz", archive({{"arg:a.npy", c}}).bytes);
  write_params_seed(seeds, "npy", c);
}

// A small network with its attributes under `key`, as one of MXNet's releases wrote it.
std::string symbol(const std::string& key, const std::string& version) {
  std::string text = R"json({"nodes": [{"op": "null", "name": "data", "inputs": []}, {"op": "null", "name": "w", "inputs": []},
 {"op": "null", "name": "b", "inputs": []},
 {"op": "Convolution", "name": "conv", KEY: {"kernel": "(3, 3)", "num_filter": "4", "pad": "(1,1)", "no_bias": "False"},
  "inputs": [[0, 0, 0], [1, 0, 0], [2, 0, 0]]},
 {"op": "Pooling", "name": "pool", KEY: {"kernel": "(2,2)", "pool_type": "max", "stride": "(2,2)"}, "inputs": [[3, 0, 0]]},
 {"op": "Flatten", "name": "flat", "inputs": [[4, 0, 0]]}, {"op": "null", "name": "label", "inputs": []},
 {"op": "SoftmaxOutput", "name": "softmax", "inputs": [[5, 0, 0], [6, 0, 0]]}], "arg_nodes": [0, 1, 2, 6],
 "node_row_ptr": [0, 1, 2, 3, 4, 5, 6, 7, 8], "heads": [[7, 0, 0]])json";
  for (std::size_t at; (at = text.find("KEY")) != std::string::npos;) text.replace(at, 3, key);
  return text + version + "}";
}

std::string moves() {
  return R"json({"nodes": [
 {"op": "null", "name": "data", "attrs": {"__shape__": "(1,4,2,2)"}, "inputs": []},
 {"op": "Reshape", "name": "r", "attrs": {"shape": "(0, -1, -3, -2)"}, "inputs": [[0, 0]]},
 {"op": "SliceChannel", "name": "s", "attrs": {"num_outputs": "2", "axis": "1"}, "inputs": [[1, 0]]},
 {"op": "elemwise_add", "name": "a", "inputs": [[2, 0], [2, 1]]},
 {"op": "_mul_scalar", "name": "m", "attrs": {"scalar": "0.5"}, "inputs": [[3, 0]]},
 {"op": "transpose", "name": "t", "attrs": {"axes": "(0, 1)"}, "inputs": [[4, 0]]}],
 "arg_nodes": [0], "heads": [[5, 0]], "attrs": {"mxnet_version": ["int", 10500]}})json";
}

void write_symbol_seed(const SeedWriter& seeds, const std::string& name, const std::string& text) {
  expect_good(name, worker::import_mxnet_symbol(file_of(name, text)).status());
  seeds.write("symbol", name, text);
}

void write_symbol_seeds(const SeedWriter& seeds) {
  write_symbol_seed(seeds, "attrs", symbol(R"("attrs")", R"(, "attrs": {"mxnet_version": ["int", 10901]})"));
  write_symbol_seed(seeds, "attr", symbol(R"("attr")", R"(, "attrs": {"mxnet_version": ["int", 901]})"));
  write_symbol_seed(seeds, "param", symbol(R"("backward_source_id": -1, "param")", ""));
  write_symbol_seed(seeds, "moves", moves());
}

// What load_fuzzer.cpp reads before the graph: flags, the seed of the numbers (with an even one batches run image by image), and
// the data's shape of at most five axes below 9.
std::string load_settings(char flags, const std::vector<std::int64_t>& dims, char seed = 1) {
  std::string bytes{flags, seed, static_cast<char>(dims.size() - 1)};
  for (const std::int64_t dim : dims) bytes += {'\0', static_cast<char>(dim - 1)};
  return bytes;
}

// Residual blocks with everything that the cpu takes along, as text and therefore open to its dictionary.
std::string residual_network() {
  return R"json({"nodes": [{"op": "null", "name": "data", "inputs": []},
 {"op": "null", "name": "w1", "inputs": []},
 {"op": "Convolution", "name": "c1", "attrs": {"kernel": "(3, 3)", "num_filter": "8", "pad": "(1, 1)", "no_bias": "True"}, "inputs": [[0, 0, 0], [1, 0, 0]]},
 {"op": "null", "name": "g1", "inputs": []}, {"op": "null", "name": "b1", "inputs": []},
 {"op": "null", "name": "m1", "inputs": []}, {"op": "null", "name": "v1", "inputs": []},
 {"op": "BatchNorm", "name": "n1", "attrs": {"fix_gamma": "False"}, "inputs": [[2, 0, 0], [3, 0, 0], [4, 0, 0], [5, 0, 0], [6, 0, 0]]},
 {"op": "Activation", "name": "r1", "attrs": {"act_type": "relu"}, "inputs": [[7, 0, 0]]},
 {"op": "null", "name": "w2", "inputs": []},
 {"op": "Convolution", "name": "c2", "attrs": {"kernel": "(1, 1)", "num_filter": "8", "no_bias": "True"}, "inputs": [[8, 0, 0], [9, 0, 0]]},
 {"op": "elemwise_add", "name": "sum", "inputs": [[10, 0, 0], [8, 0, 0]]},
 {"op": "Concat", "name": "both", "attrs": {"dim": "1"}, "inputs": [[11, 0, 0], [8, 0, 0]]},
 {"op": "Pooling", "name": "pool", "attrs": {"kernel": "(2, 2)", "pool_type": "avg", "global_pool": "True"}, "inputs": [[12, 0, 0]]},
 {"op": "null", "name": "wf", "inputs": []}, {"op": "null", "name": "bf", "inputs": []},
 {"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "5"}, "inputs": [[13, 0, 0], [14, 0, 0], [15, 0, 0]]},
 {"op": "softmax", "name": "prob", "inputs": [[16, 0, 0]]}],
 "arg_nodes": [0, 1, 3, 4, 5, 6, 9, 14, 15], "heads": [[17, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})json";
}

// Only the first window along each axis meets the image; the product of the others' negative lengths is 2^66.
std::string far_windows() {
  return R"json({"nodes": [{"op": "null", "name": "data", "inputs": []},
 {"op": "Pooling", "name": "p", "attrs": {"kernel": "(1, 1, 1)", "stride": "(4194306, 4194306, 4194306)", "pool_type": "avg",
  "pooling_convention": "full"}, "inputs": [[0, 0, 0]]}],
 "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})json";
}

// Depthwise convolutions whose images run one by one, and a BatchNorm whose mean is an output. It has as many channels as the
// batch has images.
std::string depthwise_network() {
  return R"json({"nodes": [{"op": "null", "name": "data", "inputs": []},
 {"op": "null", "name": "w1", "inputs": []},
 {"op": "Convolution", "name": "c1", "attrs": {"kernel": "(3, 3)", "num_filter": "4", "num_group": "4", "pad": "(1, 1)", "no_bias": "True"}, "inputs": [[0, 0, 0], [1, 0, 0]]},
 {"op": "null", "name": "w2", "inputs": []},
 {"op": "Convolution", "name": "c2", "attrs": {"kernel": "(3, 3)", "num_filter": "4", "num_group": "4", "pad": "(1, 1)", "no_bias": "True"}, "inputs": [[2, 0, 0], [3, 0, 0]]},
 {"op": "null", "name": "w3", "inputs": []},
 {"op": "Convolution", "name": "c3", "attrs": {"kernel": "(3, 3)", "num_filter": "4", "num_group": "4", "pad": "(1, 1)", "no_bias": "True"}, "inputs": [[4, 0, 0], [5, 0, 0]]},
 {"op": "null", "name": "g", "inputs": []}, {"op": "null", "name": "b", "inputs": []},
 {"op": "null", "name": "m", "inputs": []}, {"op": "null", "name": "v", "inputs": []},
 {"op": "BatchNorm", "name": "n", "attrs": {"output_mean_var": "True"}, "inputs": [[6, 0, 0], [7, 0, 0], [8, 0, 0], [9, 0, 0], [10, 0, 0]]},
 {"op": "null", "name": "w", "inputs": []},
 {"op": "Convolution", "name": "c", "attrs": {"kernel": "(1, 1)", "num_filter": "4", "no_bias": "True"}, "inputs": [[0, 0, 0], [12, 0, 0]]}],
 "arg_nodes": [0, 1, 3, 5, 7, 8, 9, 10, 12], "heads": [[11, 1, 0], [13, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})json";
}

void write_load_seeds(const SeedWriter& seeds) {
  constexpr char kText = 1, kSecondBatch = 8;
  const std::string image = load_settings(kText, {2, 3, 6, 6}), small = load_settings(kText, {1, 4, 2, 2});
  const auto write = [&](const std::string& name, const std::string& settings, const std::string& text) {
    expect_good(name, worker::import_mxnet_symbol(file_of(name, text)).status());
    seeds.write("load", name, settings + text);
  };
  write("layers", image, symbol(R"("attrs")", R"(, "attrs": {"mxnet_version": ["int", 10901]})"));
  write("moves", small, moves());
  write("residual", load_settings(kText | kSecondBatch, {2, 3, 6, 6}), residual_network());
  write("far_windows", load_settings(kText, {1, 1, 2, 2, 2}), far_windows());
  write("depthwise", load_settings(kText, {4, 4, 6, 6}, 2), depthwise_network());
  std::uint32_t state = 1;
  for (int i = 0; i < 64; ++i) {  // what random_symbol() makes of noise
    std::string bytes = load_settings(static_cast<char>(i % 8 * 2), {1 + i % 3, 4, 1 + i % 7, 5}, static_cast<char>(i % 2));
    while (bytes.size() < 160) bytes += static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    seeds.write("load", "noise" + std::to_string(i), bytes);
  }
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make-fuzz-seeds DIRECTORY\n");
    return 2;
  }
  const shoal::SeedWriter seeds(argv[1]);
  shoal::write_wire_seeds(seeds);
  shoal::write_attach_seeds(seeds);
  shoal::write_control_seeds(seeds);
  shoal::write_config_seeds(seeds);
  shoal::write_array_seeds(seeds);
  shoal::write_symbol_seeds(seeds);
  shoal::write_load_seeds(seeds);
}
