// Rnn: layers of recurrent cells over a batch of sequences.
#pragma once

#include <optional>

#include "worker/graph/operators.hpp"

namespace shoal::worker {

namespace ops {
extern const Operator kRnn;
}  // namespace ops

enum class RnnMode { kRelu, kTanh, kLstm, kGru };
template <>
inline constexpr std::array kWords<RnnMode>{"relu", "tanh", "lstm", "gru"};
struct RnnAttributes {
  RnnMode mode = RnnMode::kLstm;
  std::int64_t hidden = 1, layers = 1;
  bool bidirectional = false;
  std::int64_t projection = 0;
  std::optional<double> clip_min, clip_max;
  bool clips_nan = false;
  bool has_lengths = false;
};
template <>
inline constexpr auto fields_of<RnnAttributes> = std::tuple{
    field("mode", &RnnAttributes::mode, "what a cell computes"),
    field("hidden", &RnnAttributes::hidden, "numbers in the state of a cell"),
    field("layers", &RnnAttributes::layers, "each reads what the one before it gives"),
    field("bidirectional", &RnnAttributes::bidirectional,
          "each layer has a second part that goes from the last step to the first; what both give is joined"),
    field("projection", &RnnAttributes::projection,
          "lstm: a cell gives so many numbers, a product with its state; 0: its state itself"),
    field("clip_min", &RnnAttributes::clip_min, "lstm: the least number in a cell; none: there is no limit"),
    field("clip_max", &RnnAttributes::clip_max, "lstm: the largest number in a cell"),
    field("clips_nan", &RnnAttributes::clips_nan, "NaN in a cell becomes clip_min"),
    field("has_lengths", &RnnAttributes::has_lengths, "an input says how many steps each sequence has"),
};

/// The inputs of a Rnn.
inline constexpr std::size_t kRnnData = 0, kRnnParameters = 1, kRnnState = 2, kRnnLengths = 3;
/// That of the cells of an lstm, which stands behind the lengths.
inline std::size_t rnn_cell_input(const RnnAttributes& rnn) { return rnn.has_lengths ? 4 : 3; }

/// How many matrices of weights a cell has for its input. Their order: relu, tanh: one; lstm: input, forget, candidate, output;
/// gru: reset, update, candidate.
std::int64_t rnn_gates(RnnMode mode);

/// The sizes of a Rnn for which infer() has run.
struct RnnSizes {
  std::int64_t steps, sequences, width;  ///< of the data
  std::int64_t hidden, result;           ///< numbers in the state of a cell, and in what it gives
  std::int64_t gates, layers, directions;
  bool projects;

  RnnSizes(const RnnAttributes& rnn, const Shape& data);
  /// Multiplications and additions of a run.
  double flops() const;
};

/// Where the parameters of one direction of a layer begin in the vector. First come the weights of all layers, then the biases.
/// Matrices are row-major.
struct RnnParameters {
  std::int64_t width;                   ///< of what the layer reads
  std::int64_t input_weights;           ///< (gates * hidden, width)
  std::int64_t state_weights;           ///< (gates * hidden, result)
  std::int64_t projection_weights;      ///< (result, hidden); only if there is a projection
  std::int64_t input_bias, state_bias;  ///< (gates * hidden)
};
RnnParameters rnn_parameters(const RnnSizes& sizes, std::int64_t layer, std::int64_t direction);

}  // namespace shoal::worker
