// Recurrent layers, and operators of batches of sequences of different lengths.
#include "shm/base/format.hpp"
#include "worker/import/mxnet/mxnet_lowering.hpp"
#include "worker/ops/movement.hpp"
#include "worker/ops/recurrent.hpp"
#include "worker/ops/reshape.hpp"
#include "worker/ops/sequence.hpp"

namespace shoal::worker {
namespace {

using Values = std::vector<ValueId>;

void check_inputs(MxnetLowering& lowering, std::size_t wanted, const char* names) {
  if (lowering.inputs.size() == wanted) return;
  lowering.attributes.fail_node(StatusCode::kInvalidArgument, format("{} inputs; with these attributes it takes {}: {}",
                                                                     lowering.inputs.size(), wanted, names));
}

/// The limits of an lstm's cells. Both are needed, and clips_nan acts only with them.
void read_limits(AttributeReader& attributes, RnnAttributes& rnn) {
  const bool has_min = attributes.has("lstm_state_clip_min"), has_max = attributes.has("lstm_state_clip_max");
  const bool cuts_nan = attributes.flag("lstm_state_clip_nan", false);
  attributes.ignore({"lstm_state_clip_min", "lstm_state_clip_max"});  // they may be None
  if (has_min != has_max)
    attributes.fail(has_min ? "lstm_state_clip_min" : "lstm_state_clip_max", "is one of two limits; both are needed");
  if (!has_min || !has_max) return;
  if (rnn.mode != RnnMode::kLstm) attributes.fail("lstm_state_clip_min", "is for mode lstm only");
  rnn.clip_min = attributes.number("lstm_state_clip_min");
  rnn.clip_max = attributes.number("lstm_state_clip_max");
  if (!(*rnn.clip_min <= *rnn.clip_max)) attributes.fail("lstm_state_clip_min", "is above lstm_state_clip_max");
  rnn.clips_nan = cuts_nan;
}

Values rnn(MxnetLowering& lowering) {
  AttributeReader& attributes = lowering.attributes;
  RnnAttributes rnn;
  rnn.mode = static_cast<RnnMode>(attributes.choice("mode", {"rnn_relu", "rnn_tanh", "lstm", "gru"}));
  rnn.hidden = attributes.integer("state_size", {}, 1);
  rnn.layers = attributes.integer("num_layers", {}, 1);
  rnn.bidirectional = attributes.flag("bidirectional", false);
  attributes.real("p", 0);  // dropout, in training only
  const bool gives_states = attributes.flag("state_outputs", false);
  const bool is_lstm = rnn.mode == RnnMode::kLstm;
  if (attributes.has("projection_size")) {
    rnn.projection = attributes.integer("projection_size", {}, 1);
    if (!is_lstm) attributes.fail("projection_size", "is for mode lstm only");
  }
  attributes.ignore({"projection_size"});  // it may be None
  read_limits(attributes, rnn);
  rnn.has_lengths = attributes.flag("use_sequence_length", false);
  Values sources = lowering.inputs;
  if (is_lstm && rnn.has_lengths) {
    check_inputs(lowering, 5, "data, parameters, state, state_cell and sequence_length");
    if (sources.size() == 5) std::swap(sources[3], sources[4]);
  } else if (is_lstm) {
    check_inputs(lowering, 4, "data, parameters, state and state_cell");
  } else if (rnn.has_lengths) {
    check_inputs(lowering, 4, "data, parameters, state and sequence_length");
  } else {
    check_inputs(lowering, 3, "data, parameters and state");
  }
  return lowering.add(ops::kRnn, rnn, std::move(sources), !gives_states ? 1 : is_lstm ? 3 : 2);
}

/// The axis of the steps, and whether there are lengths, which are then the second input.
struct SequenceInputs {
  std::int64_t axis = 0;
  bool has_lengths = false;
};
SequenceInputs read_sequence(MxnetLowering& lowering, std::int64_t last_axis) {
  const SequenceInputs read{lowering.attributes.integer("axis", 0, 0, last_axis),
                            lowering.attributes.flag("use_sequence_length", false)};
  read.has_lengths ? check_inputs(lowering, 2, "data and sequence_length") : check_inputs(lowering, 1, "data");
  return read;
}

Values sequence_mask(MxnetLowering& lowering) {
  const SequenceInputs sequence = read_sequence(lowering, 1);
  const double value = lowering.attributes.real("value", 0);
  if (!sequence.has_lengths) return {lowering.inputs[0]};
  return lowering.add(ops::kSequenceMask, SequenceMaskAttributes{sequence.axis, value});
}

/// Without lengths it is the last step; its axis, which is 1 long, is joined with the other of the first two.
Values sequence_last(MxnetLowering& lowering) {
  const SequenceInputs sequence = read_sequence(lowering, 1);
  if (sequence.has_lengths) return lowering.add(ops::kSequenceLast, SequenceAttributes{sequence.axis});
  const SliceRange last{.axis = sequence.axis, .begin = -1};
  const Values step = lowering.add(ops::kSlice, SliceAttributes{{last}}, {lowering.inputs[0]});
  return step.empty() ? step : lowering.add(ops::kReshape, ReshapeAttributes{.shape = {-3, -2}}, step);
}

Values sequence_reverse(MxnetLowering& lowering) {
  const SequenceInputs sequence = read_sequence(lowering, 0);
  if (sequence.has_lengths) return lowering.add(ops::kSequenceReverse, SequenceAttributes{sequence.axis});
  const SliceRange reversed{.axis = 0, .step = -1};
  return lowering.add(ops::kSlice, SliceAttributes{{reversed}}, {lowering.inputs[0]});
}

}  // namespace

std::vector<MxnetOperator> sequence_operators() {
  std::vector<MxnetOperator> all;
  add_aliases(all, {"", 3, 5, -1, rnn, -1, {"output", "state_output", "statecell_output"}, {"parameters"}}, {"RNN", "_npx_rnn"});
  add_aliases(all, {"", 1, 2, -1, sequence_mask}, {"SequenceMask", "_npx_sequence_mask"});
  all.push_back({"SequenceLast", 1, 2, -1, sequence_last});
  all.push_back({"SequenceReverse", 1, 2, -1, sequence_reverse});
  return all;
}

}  // namespace shoal::worker
