#include "client/predict/src/c_call.hpp"

#include <string>

namespace shoal::predict {
namespace {

thread_local std::string text;
thread_local bool has_text = true;  ///< false: there was no memory for the text

}  // namespace

void set_last_error(const char* function, std::string_view why) noexcept try {
  has_text = false;
  text.assign(function).append(": ").append(why);
  has_text = true;
} catch (const std::bad_alloc&) {
}

const char* last_error() noexcept { return has_text ? text.c_str() : "FAILED_PRECONDITION: out of memory"; }

}  // namespace shoal::predict
