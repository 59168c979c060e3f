#include "worker/import/names.hpp"

#include <numeric>
#include <utility>

#include "shm/base/shortened.hpp"

namespace shoal::worker {
namespace {

constexpr std::size_t kComparedBytes = 128, kNearest = 3, kNameBytes = 200;

/// How many bytes must be inserted, removed or replaced to make one of the other (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kComparedBytes);
  b = b.substr(0, kComparedBytes);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

Status no_such_output(std::string_view wanted, const std::vector<std::string>& names) {
  std::vector<std::pair<std::size_t, std::string_view>> ranked;
  for (const std::string& name : names) ranked.emplace_back(distance(wanted, name), name);
  const auto nearest = std::min(ranked.size(), kNearest);
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(nearest), ranked.end());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < nearest; ++i) texts.push_back("'" + shortened(ranked[i].second, kNameBytes) + "'");
  return not_found("'outputs' names '{}', which the model does not have; most alike are {}", shortened(wanted, kNameBytes),
                   listed(texts));
}

}  // namespace shoal::worker
