// A whole load, made of bytes: a graph and its parameters are imported, inferred, folded and compiled for both devices, run once,
// and the answers compared.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "shoal/tensor.hpp"
#include "tests/fuzz/random_symbol.hpp"

namespace shoal::fuzz {

/// The first two bytes of an input. Its second byte is the seed of weights and data, too.
struct LoadFlags {
  static constexpr std::uint8_t kIsText = 1;        ///< the rest is a symbol file; else what random_symbol() makes one of
  static constexpr std::uint8_t kUnfused = 2;       ///< every node is a step of its own
  static constexpr std::uint8_t kWeightsGiven = 4;  ///< with each request; else they lie in the parameter file
  static constexpr std::uint8_t kSecondBatch = 8;   ///< a program for one more image is compiled on demand
  static constexpr std::uint8_t kOtherType = 16;    ///< the three bits above it choose the type of the data; else float32
  // in the second byte
  static constexpr std::uint8_t kWholeBatches =
      1;                                       ///< else batches run image by image as if they were larger than a core's cache
  static constexpr std::uint8_t kSteps = 2;    ///< with operators whose result may jump, so that it cannot be compared
  static constexpr std::uint8_t kBodies = 4;   ///< parts of the graph are bodies: add_bodies()
  static constexpr std::uint8_t kHostile = 8;  ///< NaN, infinities and 2^31 - 1 among the numbers of a graph with steps
};

struct LoadOutcome {
  std::string symbol;  ///< the symbol file
  TensorSpec data;
  bool ran = false;                  ///< both devices ran it; false: the graph was refused or is too large for a test
  bool compared = false;             ///< also their numbers: the graph has no steps, where one rounding makes all the difference
  std::size_t bodies = 0;            ///< nodes with bodies, if it ran
  std::size_t loosely_compared = 0;  ///< outputs whose rounding is not known
  std::string wrong;                 ///< what the devices do not agree about; empty: they agree
};

/// `only`: every node of a random graph is this MXNet operator; empty: any.
///   Threads  one at a time in a process: the files of the last input are overwritten
LoadOutcome check_whole_load(ByteSource& bytes, std::string_view only = {});

}  // namespace shoal::fuzz
