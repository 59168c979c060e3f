// Resize as a function that devices divide among their threads: row by row of the result.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "worker/ops/divided.hpp"
#include "worker/ops/resize.hpp"

namespace shoal::worker {

inline bool is_linear(ResizeKind kind) {
  return kind == ResizeKind::kLinearCorners || kind == ResizeKind::kLinearHalfPixel || kind == ResizeKind::kOpenCvLinear;
}

/// Pictures one behind the other, `inner` numbers for each pixel.
struct ResizePictures {
  ResizeKind kind = ResizeKind::kRepeat;
  std::int64_t count = 1, inner = 1, height = 1, width = 1, new_height = 1, new_width = 1;

  ResizePictures() = default;
  ResizePictures(const ResizeAttributes& resize, const Shape& src, const Shape& dst) : kind(resize.kind) {
    const int first = resize.channels_last ? src.rank() - 3 : 2;
    for (int axis = 0; axis < first; ++axis) count *= src[axis];
    if (resize.channels_last) inner = src[src.rank() - 1];
    height = src[first];
    width = src[first + 1];
    new_height = dst[first];
    new_width = dst[first + 1];
  }
  bool is_copy() const { return height == new_height && width == new_width; }
};

/// What the pixels of the result read along an axis: two pixels of the data each, and how much the second one counts.
template <typename F>
struct ResizeTaps {
  std::vector<std::int64_t> first, second;
  std::vector<F> weight;

  ResizeTaps(ResizeKind kind, std::int64_t from, std::int64_t to) {
    const double cv_scale = 1.0 / (static_cast<double>(to) / static_cast<double>(from));
    const F corners = to > 1 ? static_cast<F>(from - 1) / static_cast<F>(to - 1) : F{0};
    const F ratio = to > 1 ? static_cast<F>(from) / static_cast<F>(to) : F{0};
    for (std::int64_t i = 0; i < to; ++i) {
      const auto at = static_cast<F>(i);
      switch (kind) {
        case ResizeKind::kRepeat:
          add(i / (to / from), 0, 0);
          break;
        case ResizeKind::kLinearCorners:
          add_between(corners * at, from - 1);
          break;
        case ResizeKind::kLinearHalfPixel:
          add_between(std::max(ratio * (at + F{0.5}) - F{0.5}, F{0}), from - 1);
          break;
        case ResizeKind::kOpenCvNearest:
          add(std::min(static_cast<std::int64_t>(static_cast<double>(i) * cv_scale), from - 1), 0, 0);
          break;
        case ResizeKind::kOpenCvLinear: {
          const auto position = static_cast<float>((static_cast<double>(i) + 0.5) * cv_scale - 0.5);
          add_between(static_cast<F>(std::max(position, 0.0F)), from - 1);
          break;
        }
      }
    }
  }

  std::size_t size_bytes() const { return first.size() * (sizeof(std::int64_t) * 2 + sizeof(F)); }

  /// The same for pixels of `inner` numbers.
  void widen(std::int64_t inner) {
    if (inner == 1) return;
    const ResizeTaps pixels = std::move(*this);
    *this = ResizeTaps();
    for (std::size_t i = 0; i < pixels.first.size(); ++i) {
      for (std::int64_t k = 0; k < inner; ++k) add(pixels.first[i] * inner + k, pixels.second[i] * inner + k, pixels.weight[i]);
    }
  }

 private:
  ResizeTaps() = default;
  void add(std::int64_t one, std::int64_t other, F part) {
    first.push_back(one);
    second.push_back(other);
    weight.push_back(part);
  }
  /// At a position between pixels. `last` is the last pixel.
  void add_between(F position, std::int64_t last) {
    const std::int64_t one = std::min(static_cast<std::int64_t>(position), last);
    add(one, std::min(one + 1, last), position - static_cast<F>(one));
  }
};

/// Rows of pictures that keep their size: so NaN stays away from its neighbors.
class CopiedRows {
 public:
  CopiedRows(const ResizePictures& p, std::size_t element_bytes)
      : row_bytes_(static_cast<std::size_t>(p.width * p.inner) * element_bytes) {}
  /// Computes rows begin .. end of the result, counted through all pictures.
  template <typename Policy>
  void compute(const std::byte* src, std::byte* dst, std::int64_t begin, std::int64_t end, const Policy&) const {
    const std::size_t first = static_cast<std::size_t>(begin) * row_bytes_;
    std::memcpy(dst + first, src + first, static_cast<std::size_t>(end - begin) * row_bytes_);
  }
  static std::size_t kept_bytes() { return 0; }

 private:
  std::size_t row_bytes_;
};

/// Rows of which each pixel is one of the data.
template <typename Word>
class NearestRows {
 public:
  explicit NearestRows(const ResizePictures& p)
      : p_(p), rows_(p.kind, p.height, p.new_height), columns_(p.kind, p.width, p.new_width) {
    if (p.inner < kLeastInner) columns_.widen(p.inner);
  }
  template <typename Policy>
  void compute(const std::byte* src, std::byte* dst, std::int64_t begin, std::int64_t end, const Policy&) const {
    const std::int64_t width = p_.width * p_.inner, new_width = p_.new_width * p_.inner;
    Word* to = reinterpret_cast<Word*>(dst) + begin * new_width;
    const Word* last = nullptr;
    for (std::int64_t at = begin; at < end; ++at, to += new_width) {
      const Word* const from =
          reinterpret_cast<const Word*>(src) +
          (at / p_.new_height * p_.height + rows_.first[static_cast<std::size_t>(at % p_.new_height)]) * width;
      if (from == last)
        std::copy_n(to - new_width, new_width, to);
      else
        compute_row(from, to);
      last = from;
    }
  }
  std::size_t kept_bytes() const { return rows_.size_bytes() + columns_.size_bytes(); }

 private:
  static constexpr std::int64_t kLeastInner = 8;  // numbers that are worth a copy of their own

  void compute_row(const Word* from, Word* to) const {
    for (const std::int64_t place : columns_.first) {
      if (p_.inner < kLeastInner)
        *to++ = from[place];
      else
        to = std::copy_n(from + place * p_.inner, p_.inner, to);
    }
  }

  ResizePictures p_;
  ResizeTaps<float> rows_, columns_;
};

/// Rows between two rows of the data, each pixel between two columns.
template <typename T>
class LinearRows {
 public:
  using F = Float<T>;

  explicit LinearRows(const ResizePictures& p)
      : p_(p), rows_(p.kind, p.height, p.new_height), columns_(p.kind, p.width, p.new_width) {
    columns_.widen(p.inner);
  }
  template <typename Policy>
  void compute(const std::byte* src, std::byte* dst, std::int64_t begin, std::int64_t end, const Policy& policy) const {
    const std::int64_t new_width = p_.new_width * p_.inner;
    for (std::int64_t column = 0; column < new_width; column += kStrip)
      compute_strip(reinterpret_cast<const T*>(src), reinterpret_cast<T*>(dst), begin, end, column,
                    std::min(kStrip, new_width - column), policy);
  }
  std::size_t kept_bytes() const { return rows_.size_bytes() + columns_.size_bytes(); }

 private:
  static constexpr std::int64_t kStrip = 512;  // columns of the result, whose rows lie on the stack

  // Rows of the result that lie between the same two rows of the data share what is between the columns of these.
  template <typename Policy>
  void compute_strip(const T* src, T* dst, std::int64_t begin, std::int64_t end, std::int64_t column, std::int64_t count,
                     const Policy& policy) const {
    alignas(64) F between[2][kStrip];
    std::array<const T*, 2> held{};  // the rows of the data that `between` is of
    const std::int64_t width = p_.width * p_.inner, new_width = p_.new_width * p_.inner;
    for (std::int64_t at = begin; at < end; ++at) {
      const auto y = static_cast<std::size_t>(at % p_.new_height);
      const T* const picture = src + at / p_.new_height * p_.height * width;
      const std::array<const T*, 2> wanted{picture + rows_.first[y] * width, picture + rows_.second[y] * width};
      if (held[1] == wanted[0] && held[0] != wanted[0]) {  // the lower row is the upper one now
        std::copy_n(between[1], count, between[0]);
        held[0] = held[1];
      }
      for (std::size_t k = 0; k < 2; ++k) {
        if (held[k] == wanted[k]) continue;
        find_between(wanted[k], column, count, between[k], policy);
        held[k] = wanted[k];
      }
      join(between[0], between[1], rows_.weight[y], count, dst + at * new_width + column, policy);
    }
  }

  template <typename Policy>
  void find_between(const T* row, std::int64_t column, std::int64_t count, F* to, const Policy& policy) const {
    const std::int64_t *const first = columns_.first.data() + column, *const second = columns_.second.data() + column;
    const F* const weight = columns_.weight.data() + column;
    policy.vectorized([=] {
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = (1 - weight[i]) * static_cast<F>(row[first[i]]) + weight[i] * static_cast<F>(row[second[i]]);
    });
  }

  template <typename Policy>
  static void join(const F* above, const F* below, F weight, std::int64_t count, T* to, const Policy& policy) {
    policy.vectorized([=] {
      for (std::int64_t i = 0; i < count; ++i) to[i] = rounded((1 - weight) * above[i] + weight * below[i]);
    });
  }

  /// To a whole number, which lies between those that it was computed from.
  static T rounded(F value) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(std::nearbyint(value));
    else
      return to_element<T>(value);
  }

  ResizePictures p_;
  ResizeTaps<F> rows_, columns_;
};

/// What with_resize_rows() makes for these pictures has about as many bytes.
inline std::size_t resize_table_bytes(const ResizePictures& pictures) {
  const double numbers =
      static_cast<double>(pictures.new_width) * static_cast<double>(pictures.inner) + static_cast<double>(pictures.new_height);
  return pictures.is_copy() ? 0 : static_cast<std::size_t>(std::min(numbers * sizeof(std::int64_t) * 3, 0x1p62));
}

/// Calls run(rows) with what computes the rows of these pictures. Returns false if there is nothing for the type.
template <typename Run>
bool with_resize_rows(const ResizePictures& pictures, DType dtype, const Run& run) {
  if (pictures.is_copy()) {
    run(CopiedRows(pictures, dtype_size_bytes(dtype)));
    return true;
  }
  if (is_linear(pictures.kind)) {
    using Pixels = Joined<Floats, Types<std::uint8_t>>::Type;
    return dispatch(Pixels(), dtype, [&]<typename T>() { run(LinearRows<T>(pictures)); });
  }
  with_word(dtype, [&]<typename Word>() { run(NearestRows<Word>(pictures)); });
  return true;
}

}  // namespace shoal::worker
