// Attributes: the typed attributes of a node, and what is made of the list of their fields.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shm/base/check.hpp"
#include "worker/graph/attribute_fields.hpp"

namespace shoal::worker {

/// What can be done with a struct of attributes without knowing it. There is one per struct, made from its fields_of.
///   Threads  immutable
struct AttributeSchema {
  /// One field for a page: "kernel", "integers", "()", "extents of the window".
  struct FieldText {
    std::string name, type, missing, meaning;  ///< `missing`: the value that the struct begins with
  };

  /// Appends bytes that are equal for equal attributes, and only for these. They are the same in all builds for one processor.
  void (*append_bytes)(const void* attributes, std::string& to);
  std::string (*to_text)(const void* attributes);  ///< "kernel=(3, 3), stride=(1, 1)"
  std::vector<FieldText> (*fields)();
};

/// The schema of T. Its address says which struct it is.
template <HasFields T>
inline constexpr AttributeSchema kSchema{
    .append_bytes = [](const void* attributes, std::string& to) { append_fields(*static_cast<const T*>(attributes), to); },
    .to_text = [](const void* attributes) { return text_of_fields(*static_cast<const T*>(attributes)); },
    .fields =
        [] {
          std::vector<AttributeSchema::FieldText> texts;
          const T missing;
          for_each_field<T>([&](const auto& field) {
            const auto& value = missing.*field.member;
            texts.push_back({field.name, type_text<std::decay_t<decltype(value)>>(), text_of(value), field.meaning});
          });
          return texts;
        },
};

/// No attributes, or one struct that has fields_of. Copies share the struct, which nobody changes.
class Attributes {
 public:
  Attributes() = default;
  template <HasFields T>
  Attributes(T value)  // NOLINT(google-explicit-constructor): a struct of attributes is the node's attributes
      : value_(std::make_shared<const T>(std::move(value))), schema_(&kSchema<T>) {}

  /// Null if there are none.
  const AttributeSchema* schema() const { return schema_; }
  /// Null if they are of another struct.
  template <HasFields T>
  const T* get_if() const {
    return schema_ == &kSchema<T> ? static_cast<const T*>(value_.get()) : nullptr;
  }
  /// The attributes of a node whose operator has this struct.
  template <HasFields T>
  const T& get() const {
    const T* const value = get_if<T>();
    SHOAL_CHECK(value != nullptr);
    return *value;
  }
  /// As AttributeSchema::append_bytes; nothing if there are none.
  void append_bytes(std::string& to) const {
    if (schema_) schema_->append_bytes(value_.get(), to);
  }
  std::string to_text() const { return schema_ ? schema_->to_text(value_.get()) : std::string(); }
  friend bool operator==(const Attributes& a, const Attributes& b) {
    if (a.schema_ != b.schema_) return false;
    std::string left, right;
    a.append_bytes(left);
    b.append_bytes(right);
    return left == right;
  }

 private:
  std::shared_ptr<const void> value_;
  const AttributeSchema* schema_ = nullptr;
};

}  // namespace shoal::worker
