#include "shm/wire/status_page.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "shm/base/errors.hpp"
#include "shm/segment/segment.hpp"

namespace shoal::wire {

Result<UniqueFd> make_status_page(std::size_t lanes) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd page, create_memfd("status", status_page_bytes(lanes)));
  const PageHeader header{
      .magic = kPageMagic, .version = kPageVersion, .lanes = static_cast<std::uint16_t>(lanes), .reserved = {}};
  if (::pwrite(page.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    return status_from_errno("write", "the header of a status page", errno);
  SHOAL_RETURN_IF_ERROR(seal(page, Seals::kFixedSize));
  return page;
}

Status check_status_page(std::span<const std::byte> page, std::size_t lanes) {
  if (lanes == 0 || lanes > kMaxLanes || page.size() < status_page_bytes(lanes))
    return invalid_argument("a status page of {} bytes does not hold {} lanes", page.size(), lanes);
  PageHeader header;
  std::memcpy(&header, page.data(), sizeof header);
  if (header.magic != kPageMagic) return invalid_argument("this memory is no status page");
  if (header.version != kPageVersion)
    return invalid_argument("status page: version {}, this side knows {}: use the same release of both", header.version,
                            kPageVersion);
  if (header.lanes != lanes) return invalid_argument("a status page for {} lanes, and {} are asked for", header.lanes, lanes);
  return {};
}

}  // namespace shoal::wire
