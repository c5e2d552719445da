// Memory that is registered with network hardware, which then reads and writes it by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "transport/ucx/ucx_library.hpp"

namespace pith {

class UcxRegions {
 public:
  // `type`: of all memory that is registered.
  UcxRegions(const UcxLibrary& ucx, ucp_context_h context, ucs_memory_type_t type)
      : ucx_(ucx), context_(context), type_(type) {}
  ~UcxRegions();
  UcxRegions(const UcxRegions&) = delete;
  UcxRegions& operator=(const UcxRegions&) = delete;

  ucs_memory_type_t type() const { return type_; }
  // `memory`: as Compute::network_memory(). Null: UCX refused, and checks memory at each message.
  ucp_mem_h of(std::uint64_t memory, const std::byte* data, std::size_t bytes);

 private:
  struct Region {
    std::size_t bytes = 0;
    ucp_mem_h handle = nullptr;
  };
  ucp_mem_h add(const std::byte* data, std::size_t bytes);

  const UcxLibrary& ucx_;
  const ucp_context_h context_;
  const ucs_memory_type_t type_;
  using Place = std::pair<std::uint64_t, const std::byte*>;
  std::map<Place, Region> regions_;  // the last from each address on
  std::vector<ucp_mem_h> handles_;
};

}  // namespace pith
