#include "worker/graph/types.hpp"

namespace shoal::worker {
namespace {

struct Group {
  const char* name;
  TypeSet types;
};
constexpr Group kGroups[] = {{"any type", AnyTypes()}, {"numbers", Numbers()}, {"floats", Floats()}, {"integers", Integers()}};

}  // namespace

std::string TypeSet::to_text() const {
  std::string text;
  TypeSet said{Types<>()};
  const auto say = [&](std::string_view name, TypeSet types) {
    if (!holds(types) || said.holds(types)) return;
    text += (text.empty() ? "" : ", ") + std::string(name);
    said.bits_ |= types.bits_;
  };
  for (const Group& group : kGroups) say(group.name, group.types);
  const auto say_each = [&]<typename... Ts>(Types<Ts...>) { (say(dtype_name(kDTypeOf<Ts>), Types<Ts>()), ...); };
  say_each(AnyTypes());
  return text;
}

}  // namespace shoal::worker
