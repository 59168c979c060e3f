// Rnn: layers of recurrent cells over a batch of sequences.
#include "worker/ops/recurrent.hpp"

#include <algorithm>
#include <vector>

#include "shm/base/errors.hpp"
#include "worker/graph/shapes.hpp"
#include "worker/ops/elements.hpp"
#include "worker/ops/lengths.hpp"
#include "worker/ops/recurrent_functions.hpp"

namespace shoal::worker {
namespace {

bool is_lstm(const RnnAttributes& rnn) { return rnn.mode == RnnMode::kLstm; }
std::int64_t directions_of(const RnnAttributes& rnn) { return rnn.bidirectional ? 2 : 1; }
std::int64_t result_of(const RnnAttributes& rnn) { return rnn.projection > 0 ? rnn.projection : rnn.hidden; }

Status check_attributes(const Node& node) {
  const auto& rnn = node.attributes.get<RnnAttributes>();
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "hidden", {rnn.hidden}, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "layers", {rnn.layers}, 1));
  SHOAL_RETURN_IF_ERROR(check_numbers(node, "projection", {rnn.projection}, 0));
  if (is_lstm(rnn)) {
    if (rnn.clip_min.has_value() != rnn.clip_max.has_value())
      return invalid_argument("{}: one of clip_min and clip_max is given; both are needed", describe(node));
    if (rnn.clip_min && !(*rnn.clip_min <= *rnn.clip_max))
      return invalid_argument("{}: clip_min {} is above clip_max {}", describe(node), *rnn.clip_min, *rnn.clip_max);
  } else if (rnn.projection > 0 || rnn.clip_min || rnn.clip_max) {
    return invalid_argument("{}: only an lstm has a projection or limits of its cells", describe(node));
  }
  return {};
}

Status check_counts(const Node& node, std::size_t inputs, std::size_t outputs) {
  const auto& rnn = node.attributes.get<RnnAttributes>();
  const std::size_t wanted = rnn_cell_input(rnn) + (is_lstm(rnn) ? 1 : 0), most = is_lstm(rnn) ? 3 : 2;
  if (inputs != wanted)
    return invalid_argument("{}: {} inputs; it takes data, parameters and state{}{}", describe(node), inputs,
                            rnn.has_lengths ? ", the lengths" : "", is_lstm(rnn) ? ", and the cells" : "");
  if (outputs <= most) return {};
  return invalid_argument("{}: {} outputs; it has up to {}", describe(node), outputs, most);
}

/// The number of all parameters. A Dim does not overflow.
Dim parameter_count(const RnnAttributes& rnn, Dim width) {
  const Dim directions = directions_of(rnn), result = result_of(rnn), units = Dim(rnn_gates(rnn.mode)) * rnn.hidden;
  const Dim of_each = units * (result + 2) + Dim(rnn.projection) * rnn.hidden;  // but for what the input is multiplied by
  return directions * (Dim(rnn.layers) * of_each + units * (width + Dim(rnn.layers - 1) * directions * result));
}

/// The shapes of all inputs, which follow from the data.
std::vector<SymbolicShape> input_shapes(const RnnAttributes& rnn, const SymbolicShape& data) {
  const Dim states = Dim(rnn.layers) * directions_of(rnn);
  std::vector<SymbolicShape> shapes{data, {parameter_count(rnn, data[2])}, {states, data[1], result_of(rnn)}};
  if (rnn.has_lengths) shapes.push_back({data[1]});
  if (is_lstm(rnn)) shapes.push_back({states, data[1], rnn.hidden});
  return shapes;
}

const char* role_of(const RnnAttributes& rnn, std::size_t input) {
  if (input == kRnnParameters) return "the parameters";
  if (input == kRnnState) return "the state";
  return input == kRnnLengths && rnn.has_lengths ? "the lengths" : "the cells";
}

Status infer_rnn(const Node& node, SourceValues src, ResultValues dst) {
  const auto& rnn = node.attributes.get<RnnAttributes>();
  SHOAL_RETURN_IF_ERROR(check_attributes(node));
  SHOAL_RETURN_IF_ERROR(check_counts(node, src.size(), dst.size()));
  const TypedValue& data = src[kRnnData];
  SHOAL_RETURN_IF_ERROR(check_float(node, data));
  SHOAL_RETURN_IF_ERROR(check_rank(node, data, 3, 3));
  const std::vector<SymbolicShape> shapes = input_shapes(rnn, data.shape);
  for (std::size_t i = 1; i < src.size(); ++i) {
    if (rnn.has_lengths && i == kRnnLengths) {
      SHOAL_RETURN_IF_ERROR(check_number(node, src[i]));
    } else {
      const std::array pair{data, src[i]};
      SHOAL_RETURN_IF_ERROR(check_same_dtype(node, pair));
    }
    SHOAL_RETURN_IF_ERROR(check_shape(node, role_of(rnn, i), src[i], shapes[i]));
  }
  set_result(dst[0], data.dtype, {data.shape[0], data.shape[1], Dim(directions_of(rnn)) * result_of(rnn)});
  if (dst.size() > 1) set_result(dst[1], data.dtype, shapes[kRnnState]);
  if (dst.size() > 2) set_result(dst[2], data.dtype, shapes.back());
  return {};
}

void supply_inputs(const Node& node, std::span<TypedValue> src) {
  const auto& rnn = node.attributes.get<RnnAttributes>();
  const TypedValue& data = src[kRnnData];
  if (!check_attributes(node).ok() || !check_counts(node, src.size(), 1).ok()) return;
  if (is_open(data.shape) || data.shape.rank() != 3) return;
  const std::vector<SymbolicShape> shapes = input_shapes(rnn, data.shape);
  for (std::size_t i = 1; i < src.size(); ++i) supply(src[i], data.dtype, shapes[i]);
}

/// Sum of a[i] * b[i].
template <typename F, typename A, typename B>
F dot(const A* a, const B* b, std::int64_t count) {
  F sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<F>(a[i]) * static_cast<F>(b[i]);
  return sum;
}

/// One step of one sequence. T: the type of the parameters.
template <typename T>
class RnnCell {
 public:
  using F = Compute<T>;

  RnnCell(const RnnAttributes& rnn, const RnnSizes& sizes, const T* parameters)
      : rnn_(rnn), sizes_(sizes), limits_(rnn), parameters_(parameters) {
    const auto units = static_cast<std::size_t>(sizes.gates * sizes.hidden);
    of_input_.resize(units);
    of_state_.resize(units);
    made_.resize(static_cast<std::size_t>(sizes.hidden));
  }

  /// hidden: what the cell gave at the step before, which becomes what it gives now.
  template <typename X>
  void step(const RnnParameters& at, const X* x, F* hidden, F* cell) {
    for (std::size_t unit = 0; unit < of_input_.size(); ++unit) {
      const auto row = static_cast<std::int64_t>(unit);
      of_input_[unit] = dot<F>(x, parameters_ + at.input_weights + row * at.width, at.width) + bias(at.input_bias, row);
      of_state_[unit] =
          dot<F>(hidden, parameters_ + at.state_weights + row * sizes_.result, sizes_.result) + bias(at.state_bias, row);
    }
    for (std::size_t unit = 0; unit < made_.size(); ++unit) made_[unit] = activate(unit, hidden, cell);
    if (!sizes_.projects) {
      std::ranges::copy(made_, hidden);
      return;
    }
    for (std::int64_t i = 0; i < sizes_.result; ++i)
      hidden[i] = dot<F>(made_.data(), parameters_ + at.projection_weights + i * sizes_.hidden, sizes_.hidden);
  }

 private:
  F bias(std::int64_t first, std::int64_t row) const { return static_cast<F>(parameters_[first + row]); }

  F activate(std::size_t unit, const F* hidden, F* cell) const {
    using Gates = ExactGates<F>;
    const std::size_t gate = made_.size();
    const auto sum = [&](std::size_t k) { return of_input_[k * gate + unit] + of_state_[k * gate + unit]; };
    switch (rnn_.mode) {
      case RnnMode::kRelu:
        return relu_cell(sum(0));
      case RnnMode::kTanh:
        return Gates::tanh(sum(0));
      case RnnMode::kLstm:
        return lstm_cell<Gates>(sum(0), sum(1), sum(2), sum(3), cell[unit], limits_);
      case RnnMode::kGru:
        return gru_cell<Gates>(sum(0), sum(1), of_input_[2 * gate + unit], of_state_[2 * gate + unit], hidden[unit]);
    }
    return 0;
  }

  const RnnAttributes& rnn_;
  const RnnSizes& sizes_;
  const CellLimits<F> limits_;
  const T* const parameters_;
  std::vector<F> of_input_, of_state_;  // what each unit of each gate gets
  std::vector<F> made_;
};

template <typename T>
class RnnRun {
 public:
  using F = Compute<T>;

  RnnRun(const Node& node, Sources src, Results dst)
      : rnn_(node.attributes.get<RnnAttributes>()),
        sizes_(rnn_, src[kRnnData].shape),
        src_(src),
        dst_(dst),
        cell_(rnn_, sizes_, elements<T>(src[kRnnParameters])),
        lengths_(static_cast<std::size_t>(sizes_.sequences), sizes_.steps),
        above_(static_cast<std::size_t>(sizes_.steps * sizes_.sequences * sizes_.directions * sizes_.result)) {
    if (!rnn_.has_lengths) return;
    const LengthReader length_of = length_reader(src[kRnnLengths].dtype);
    for (std::size_t n = 0; n < lengths_.size(); ++n)
      lengths_[n] = length_of(src[kRnnLengths].data, static_cast<std::int64_t>(n), sizes_.steps);
  }

  void run() {
    std::vector<F> below;
    for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
      if (layer > 0) {
        below.swap(above_);
        above_.resize(below.size());
      }
      for (std::int64_t direction = 0; direction < sizes_.directions; ++direction) {
        layer == 0 ? pass(layer, direction, elements<T>(src_[kRnnData])) : pass(layer, direction, below.data());
      }
    }
    if (dst_[0].data != nullptr) store(above_.data(), above_.size(), elements<T>(dst_[0]));
  }

 private:
  /// One direction of a layer, over what the layer reads.
  template <typename X>
  void pass(std::int64_t layer, std::int64_t direction, const X* below) {
    const RnnParameters at = rnn_parameters(sizes_, layer, direction);
    const std::int64_t states = (layer * sizes_.directions + direction) * sizes_.sequences;
    std::vector<F> hidden = load(src_[kRnnState], states * sizes_.result, sizes_.result), cell;
    if (is_lstm(rnn_)) cell = load(src_[rnn_cell_input(rnn_)], states * sizes_.hidden, sizes_.hidden);
    for (std::int64_t i = 0; i < sizes_.steps; ++i) {
      const std::int64_t step = direction == 0 ? i : sizes_.steps - 1 - i;
      for (std::int64_t n = 0; n < sizes_.sequences; ++n) {
        const std::int64_t row = step * sizes_.sequences + n;
        F* const given = above_.data() + (row * sizes_.directions + direction) * sizes_.result;
        if (step >= lengths_[static_cast<std::size_t>(n)]) {  // the sequence has ended, or not begun
          std::fill_n(given, sizes_.result, F{0});
          continue;
        }
        F* const state = hidden.data() + n * sizes_.result;
        cell_.step(at, below + row * at.width, state, cell.empty() ? nullptr : cell.data() + n * sizes_.hidden);
        std::copy_n(state, sizes_.result, given);
      }
    }
    if (dst_.size() > 1 && dst_[1].data != nullptr)
      store(hidden.data(), hidden.size(), elements<T>(dst_[1]) + states * sizes_.result);
    if (dst_.size() > 2 && dst_[2].data != nullptr)
      store(cell.data(), cell.size(), elements<T>(dst_[2]) + states * sizes_.hidden);
  }

  /// `each` numbers for each sequence.
  std::vector<F> load(const TensorView& from, std::int64_t first, std::int64_t each) const {
    const T* const begin = elements<T>(from) + first;
    std::vector<F> numbers(static_cast<std::size_t>(sizes_.sequences * each));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<F>(begin[i]);
    return numbers;
  }
  static void store(const F* from, std::size_t count, T* to) {
    for (std::size_t i = 0; i < count; ++i) to[i] = to_element<T>(from[i]);
  }

  const RnnAttributes& rnn_;
  const RnnSizes sizes_;
  const Sources src_;
  const Results dst_;
  RnnCell<T> cell_;
  std::vector<std::int64_t> lengths_;
  std::vector<F> above_;  // what the layer gives
};

Status compute_rnn(const Node& node, Sources src, Results dst) {
  return dispatch<Floats>(node, src[kRnnData].dtype, [&]<typename T>() {
    RnnRun<T>(node, src, dst).run();
    return Status();
  });
}

Work rnn_work(const Node& node, Sources src, Sources dst) {
  const double flops = RnnSizes(node.attributes.get<RnnAttributes>(), src[kRnnData].shape).flops();
  return {.operations = elements_of(src) + elements_of(dst) + flops, .flops = flops};
}

}  // namespace

std::int64_t rnn_gates(RnnMode mode) {
  switch (mode) {
    case RnnMode::kRelu:
    case RnnMode::kTanh:
      return 1;
    case RnnMode::kLstm:
      return 4;
    case RnnMode::kGru:
      return 3;
  }
  return 0;
}

RnnSizes::RnnSizes(const RnnAttributes& rnn, const Shape& data)
    : steps(data[0]),
      sequences(data[1]),
      width(data[2]),
      hidden(rnn.hidden),
      result(result_of(rnn)),
      gates(rnn_gates(rnn.mode)),
      layers(rnn.layers),
      directions(directions_of(rnn)),
      projects(rnn.projection > 0) {}

double RnnSizes::flops() const {
  const auto number = [](std::int64_t size) { return static_cast<double>(size); };
  const double inner = number(directions * result), read = number(width) + number(layers - 1) * inner;
  double products = number(gates * hidden) * (read + number(layers * result));
  if (projects) products += number(layers * result * hidden);
  return 2 * number(steps * sequences * directions) * products;
}

RnnParameters rnn_parameters(const RnnSizes& sizes, std::int64_t layer, std::int64_t direction) {
  const std::int64_t units = sizes.gates * sizes.hidden, inner = sizes.directions * sizes.result;
  const auto weights = [&](std::int64_t width) {
    return units * (width + sizes.result) + (sizes.projects ? sizes.result * sizes.hidden : 0);
  };
  // The weights before those of the layer.
  const auto before = [&](std::int64_t at) {
    return at == 0 ? 0 : sizes.directions * (weights(sizes.width) + (at - 1) * weights(inner));
  };
  RnnParameters found{};
  found.width = layer == 0 ? sizes.width : inner;
  found.input_weights = before(layer) + direction * weights(found.width);
  found.state_weights = found.input_weights + units * found.width;
  found.projection_weights = found.state_weights + units * sizes.result;
  found.input_bias = before(sizes.layers) + (layer * sizes.directions + direction) * 2 * units;
  found.state_bias = found.input_bias + units;
  return found;
}

namespace ops {

const Operator kRnn({
    .name = "Rnn",
    .inputs = {3, 5},
    .outputs = {1, 3},
    .attributes = &kSchema<RnnAttributes>,
    .infer = infer_rnn,
    .infer_parameters = supply_inputs,
    .constant_types = ConstantTypes::kAsData,
    .facts = indexed_facts(rows_mixed, kRnnLengths, rnn_work, Accuracy::kLost),
    .oracle = compute_rnn,
    .formula =
        "data (T, N, I), parameters, state (L D, N, R), [lengths (N)], [cells (L D, N, H), of an lstm]: results (T, N, D R), the "
        "last "
        "states, the last cells. T steps of N sequences; H is `hidden`, R is `projection`, or H if there is none; L layers of D "
        "directions. With a = W_x x + b_x of what the layer reads and u = W_h h + b_h of what the cell gave before: relu: h = "
        "max(a + u, "
        "0). tanh: h = tanh(a + u). lstm, gates i f g o: c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c), and with "
        "a projection h = W_r h. gru, gates r z n: n = tanh(a_n + sigmoid(r) u_n), h = (1 - sigmoid(z)) n + sigmoid(z) h. The "
        "second "
        "direction begins with the last step. The parameters are one vector: for each layer and direction W_x (G H, I or D R), "
        "W_h (G H, "
        "R), [W_r (R, H)], then for each b_x, b_h (G H). Behind its length a sequence gives 0 and keeps its state",
    .source = "MXNet 1.9.1 src/operator/rnn-inl.h, rnn_impl.h; lengths and limits as cuDNN 7 has them",
});

}  // namespace ops

}  // namespace shoal::worker
