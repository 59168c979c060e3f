#include "worker/exec/weight_store.hpp"

#include <link.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "shm/base/check.hpp"
#include "shm/base/errors.hpp"
#include "shm/base/ranges.hpp"

namespace shoal::worker {
namespace {

constexpr char kMagic[8] = {'S', 'H', 'O', 'A', 'L', 'W', 'T', 'S'};
constexpr std::uint32_t kVersion = 2;
constexpr std::uint64_t kWeightAlignment = 64;

// The segment: header, entry table, the texts (identity, keys, layouts), then the blobs, each on a 64-byte border.
struct PackedHeader {
  char magic[8];
  std::uint32_t version, entry_count;
  std::uint64_t model_hash;
  std::uint64_t identity_offset, identity_size;
};
static_assert(sizeof(PackedHeader) == 40);

struct PackedEntry {
  std::uint64_t key_offset, layout_offset;
  std::uint32_t key_size;
  std::uint16_t layout_size;
  DType dtype;
  std::uint8_t reserved;
  std::uint64_t offset_bytes, size_bytes;
};
static_assert(sizeof(PackedEntry) == 40);

// None if it lies outside.
std::optional<std::string_view> text_at(std::span<const std::byte> packed, std::uint64_t offset, std::uint64_t size) {
  if (!fits(offset, size, packed.size())) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(packed.data()) + offset, size);
}

void copy_text(std::span<std::byte> packed, std::uint64_t offset, std::string_view text) {
  std::memcpy(packed.data() + offset, text.data(), text.size());
}

}  // namespace

Status write_source(const ConstantChain& chain, const WeightForm&, std::span<std::byte> dst) {
  const std::span<const std::byte> bytes = chain.source->constant.bytes;
  if (bytes.size() != dst.size())
    return internal_error("constant '{}' of {} bytes is read as {} bytes", chain.source->name, bytes.size(), dst.size());
  std::ranges::copy(bytes, dst.begin());
  return {};
}

Result<std::unique_ptr<WeightStore>> WeightStore::open(std::string identity, UniqueFd packed) {
  SHOAL_RETURN_IF_ERROR(check_sealed(packed, Seals::kReadOnly).status());
  SHOAL_ASSIGN_OR_RETURN(Segment segment, Segment::map(packed, Segment::Access::kReadOnly));
  auto store = std::make_unique<WeightStore>(WeightIdentity{.text = std::move(identity)});
  SHOAL_RETURN_IF_ERROR(store->read_table(segment.bytes()));
  store->segment_ = std::make_shared<const Segment>(std::move(segment));
  store->fd_ = std::move(packed);
  store->sealed_ = true;
  return store;
}

Status WeightStore::read_table(std::span<const std::byte> packed) {
  PackedHeader header;
  if (packed.size() < sizeof header) return failed_precondition("packed weights of {} bytes have no header", packed.size());
  std::memcpy(&header, packed.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.version != kVersion) {
    return failed_precondition("these are no packed weights of version {}", kVersion);
  }
  identity_.model_hash = header.model_hash;
  const auto packed_for = text_at(packed, header.identity_offset, header.identity_size);
  if (!packed_for) return failed_precondition("the packed weights' identity lies outside");
  if (*packed_for != identity_.text)
    return failed_precondition("the weights are packed for '{}', not for '{}'", *packed_for, identity_.text);
  if (!fits(sizeof header, std::uint64_t{header.entry_count} * sizeof(PackedEntry), packed.size())) {
    return failed_precondition("the packed weights' table of {} entries lies outside", header.entry_count);
  }
  for (std::uint32_t i = 0; i < header.entry_count; ++i) {
    PackedEntry entry;
    std::memcpy(&entry, packed.data() + sizeof header + i * sizeof entry, sizeof entry);
    const auto key = text_at(packed, entry.key_offset, entry.key_size);
    const auto layout = text_at(packed, entry.layout_offset, entry.layout_size);
    if (!key || !layout || !fits(entry.offset_bytes, entry.size_bytes, packed.size()))
      return failed_precondition("packed entry {} lies outside", i);
    if (entry.offset_bytes % kWeightAlignment != 0)
      return failed_precondition("packed entry {} is not on a border of {} bytes", i, kWeightAlignment);
    entries_.push_back({std::string(*key), {entry.dtype, std::string(*layout)}, entry.offset_bytes, entry.size_bytes});
    index_entry(static_cast<int>(i));
  }
  return {};
}

Status WeightStore::check_model(std::uint64_t model_hash) const {
  if (identity_.model_hash == model_hash) return {};
  return failed_precondition("the packed weights are of another model: the files have changed");
}

Status WeightStore::check_size(int index, std::uint64_t size_bytes) const {
  const WeightEntry& packed = entry(index);
  if (packed.size_bytes == size_bytes) return {};
  return failed_precondition("packed weights '{}' have {} bytes, and {} would be read", packed.key, packed.size_bytes,
                             size_bytes);
}

void WeightStore::index_entry(int index) { by_key_[entry(index).key].push_back(index); }

int WeightStore::find(const std::string& key, const WeightForm& form) const {
  for (const int index : forms_of(key)) {
    if (entry(index).form == form) return index;
  }
  return -1;
}

std::vector<int> WeightStore::forms_of(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? std::vector<int>{} : found->second;
}

int WeightStore::add(const ConstantChain& chain, const WeightForm& form, std::uint64_t size_bytes, FormWriter write) {
  const std::string key = chain.key();
  if (const int found = find(key, form); found >= 0) return found;
  SHOAL_CHECK(!is_sealed());
  const int index = static_cast<int>(entries_.size());
  std::vector<int>& same_key = by_key_[key];
  same_key.push_back(index);
  try {
    origins_.push_back({chain, write});
    entries_.push_back({key, form, 0, size_bytes});
  } catch (...) {
    same_key.pop_back();
    origins_.resize(entries_.size());
    throw;
  }
  return index;
}

void WeightStore::forget_from(std::size_t count) {
  SHOAL_CHECK(!is_sealed());
  while (entries_.size() > count) {
    const auto same_key = by_key_.find(entries_.back().key);
    same_key->second.pop_back();
    if (same_key->second.empty()) by_key_.erase(same_key);
    entries_.pop_back();
    origins_.pop_back();
  }
}

Status WeightStore::seal(Contents contents) {
  SHOAL_CHECK(!is_sealed());
  if (entries_.empty()) {
    sealed_ = true;
    return {};
  }
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, create_memfd("weights", place_entries(), /*huge_aligned=*/true));
  SHOAL_RETURN_IF_ERROR(write_entries(fd, contents));
  SHOAL_RETURN_IF_ERROR(shoal::seal(fd, Seals::kReadOnly));
  SHOAL_ASSIGN_OR_RETURN(Segment read_only, Segment::map(fd, Segment::Access::kReadOnly));
  read_only.gather_into_huge_pages();
  segment_ = std::make_shared<const Segment>(std::move(read_only));
  fd_ = std::move(fd);
  origins_.clear();
  sealed_ = true;
  return {};
}

std::uint64_t WeightStore::place_entries() {
  std::uint64_t at = sizeof(PackedHeader) + entries_.size() * sizeof(PackedEntry) + identity_.text.size();
  for (const auto& entry : entries_) at += entry.key.size() + entry.form.layout.size();
  for (auto& entry : entries_) {
    entry.offset_bytes = align_up(at, kWeightAlignment);
    at = entry.offset_bytes + entry.size_bytes;
  }
  return at;
}

Status WeightStore::write_entries(const UniqueFd& fd, Contents contents) const {
  SHOAL_ASSIGN_OR_RETURN(Segment writable, Segment::map(fd, Segment::Access::kReadWrite));
  writable.hide_from_children();  // another thread of the program may fork meanwhile
  const std::span<std::byte> packed = writable.mutable_bytes();
  write_table(packed);
  for (std::size_t i = 0; i < entries_.size() && contents == Contents::kFilled; ++i)
    SHOAL_RETURN_IF_ERROR(
        origins_[i].write(origins_[i].chain, entries_[i].form, packed.subspan(entries_[i].offset_bytes, entries_[i].size_bytes)));
  return {};
}

void WeightStore::write_table(std::span<std::byte> packed) const {
  PackedHeader header{.version = kVersion,
                      .entry_count = static_cast<std::uint32_t>(entries_.size()),
                      .model_hash = identity_.model_hash,
                      .identity_size = identity_.text.size()};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::uint64_t text = sizeof header + entries_.size() * sizeof(PackedEntry);
  header.identity_offset = text;
  copy_text(packed, text, identity_.text);
  text += identity_.text.size();
  std::memcpy(packed.data(), &header, sizeof header);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const WeightEntry& entry = entries_[i];
    const PackedEntry row{text,
                          text + entry.key.size(),
                          static_cast<std::uint32_t>(entry.key.size()),
                          static_cast<std::uint16_t>(entry.form.layout.size()),
                          entry.form.dtype,
                          0,
                          entry.offset_bytes,
                          entry.size_bytes};
    std::memcpy(packed.data() + sizeof header + i * sizeof row, &row, sizeof row);
    copy_text(packed, row.key_offset, entry.key);
    copy_text(packed, row.layout_offset, entry.form.layout);
    text += entry.key.size() + entry.form.layout.size();
  }
}

const std::byte* WeightStore::address(int index) const {
  return segment_ ? segment_->bytes().data() + entry(index).offset_bytes : nullptr;
}

namespace {

std::string hexadecimal(const unsigned char* bytes, std::size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
  return text;
}

// The program itself comes first among the loaded objects; its notes hold the build id.
int read_build_id(dl_phdr_info* info, std::size_t, void* found) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(info->dlpi_addr + header.p_vaddr);
    for (const auto* end = at + header.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const auto* name = at + sizeof note;
      const auto* content = name + align_up(note.n_namesz, 4);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        *static_cast<std::string*>(found) = hexadecimal(content, note.n_descsz);
        return 1;
      }
      at = content + align_up(note.n_descsz, 4);
    }
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string found;
  ::dl_iterate_phdr(read_build_id, &found);
  return found;
}

}  // namespace shoal::worker
