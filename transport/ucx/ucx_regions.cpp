#include "transport/ucx/ucx_regions.hpp"

namespace pith {

UcxRegions::~UcxRegions() {
  for (const ucp_mem_h handle : handles_) ucx_.mem_unmap(context_, handle);
}

ucp_mem_h UcxRegions::of(std::uint64_t memory, const std::byte* data, std::size_t bytes) {
  const auto next = regions_.upper_bound({memory, data});
  if (next != regions_.begin()) {
    const auto& [start, region] = *std::prev(next);
    if (start.first == memory && data + bytes <= start.second + region.bytes) return region.handle;
  }
  const ucp_mem_h handle = add(data, bytes);
  regions_[{memory, data}] = {bytes, handle};
  return handle;
}

ucp_mem_h UcxRegions::add(const std::byte* data, std::size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = const_cast<std::byte*>(data);
  params.length = bytes;
  params.memory_type = type_;
  ucp_mem_h handle = nullptr;
  if (ucx_.mem_map(context_, &params, &handle) != UCS_OK) return nullptr;
  handles_.push_back(handle);
  return handle;
}

}  // namespace pith
