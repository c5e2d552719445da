// Memory and signals that NCCL's device interface asks for: pure arithmetic, which clients do
// before they find that there is no device communicator. The numbers are those of NCCL 2.28.9, and
// of 2.30.7 for later functions; tests/nccl compares them with the real library.
#include <cstdint>
#include <cstring>

#include "nccl/exported.hpp"

namespace {

// `buffer`: where the memory's offset is to be written.
ncclResult_t require(ncclDevResourceRequirements_t* out, std::size_t bytes, std::size_t alignment,
                     ncclDevResourceHandle_t* buffer) {
  std::memset(out, 0, sizeof *out);
  out->bufferSize = bytes;
  out->bufferAlign = alignment;
  out->outBufferHandle = buffer;
  return ncclSuccess;
}

// Smaller blocks would share a cache line.
constexpr int least_log2 = 7;

}  // namespace

// A slot holds eight bytes of an element.
NCCL_EXPORT(int, ncclLLA2ACalcSlots, (int element_count, int element_bytes)) {
  return element_count * ((element_bytes + 7) / 8);
}

// Two sets of slots and a line for the epoch, 16 bytes each.
NCCL_EXPORT(ncclResult_t, ncclLLA2ACreateRequirement,
            (int blocks, int slots, ncclLLA2AHandle_t* handle,
             ncclDevResourceRequirements_t* out)) {
  if (!handle || !out) return ncclInvalidArgument;
  handle->nSlots = static_cast<std::uint32_t>(slots);
  const auto lines = static_cast<std::size_t>(blocks) * (1 + 2 * static_cast<std::size_t>(slots));
  return require(out, lines * 16, 16, &handle->bufHandle);
}

// Three words per barrier, and one per barrier and rank.
NCCL_EXPORT(ncclResult_t, ncclLsaBarrierCreateRequirement,
            (ncclTeam_t team, int barriers, ncclLsaBarrierHandle_t* handle,
             ncclDevResourceRequirements_t* out)) {
  if (!handle || !out) return ncclInvalidArgument;
  handle->nBarriers = barriers;
  const auto words = static_cast<std::size_t>(barriers) * static_cast<std::size_t>(3 + team.nRanks);
  return require(out, words * 4, 4, &handle->bufHandle);
}

NCCL_EXPORT(ncclResult_t, ncclGinBarrierCreateRequirement,
            (ncclComm_t, ncclTeam_t, int barriers, ncclGinBarrierHandle_t* handle,
             ncclDevResourceRequirements_t* out)) {
  if (!handle || !out) return ncclInvalidArgument;
  require(out, static_cast<std::size_t>(barriers) * 16, 4, &handle->bufHandle);
  out->ginSignalCount = barriers;
  out->outGinSignalStart = &handle->signal0;
  return ncclSuccess;
}

NCCL_EXPORT(ncclResult_t, ncclGinOutboxCreateRequirement,
            (int blocks, int size_log2, ncclGinOutboxHandle_t* handle,
             ncclDevResourceRequirements_t* out)) {
  if (!handle || !out || size_log2 < 0 || size_log2 > 31) return ncclInvalidArgument;
  const int log2 = size_log2 < least_log2 ? least_log2 : size_log2;
  handle->size_log2 = static_cast<std::uint32_t>(log2);
  constexpr std::size_t state = 8320;  // per block, in addition to the data
  return require(out, static_cast<std::size_t>(blocks) * (state + (std::size_t{1} << log2)), 128,
                 &handle->bufHandle);
}

NCCL_EXPORT(ncclResult_t, ncclGinInboxA2ACreateRequirement,
            (ncclTeam_t peers, int blocks, int size_log2, ncclGinInboxA2AHandle_t* handle,
             ncclDevResourceRequirements_t* out)) {
  if (!handle || !out || size_log2 < 0 || size_log2 > 31) return ncclInvalidArgument;
  const int others = peers.nRanks - 1;
  handle->size_log2 = static_cast<std::uint32_t>(size_log2);
  // Reciprocal for division by multiplication. NCCL itself divides by zero if a rank has no peer.
  const std::uint64_t one = std::uint64_t{1} << 32;
  handle->nPeers_rcp32 =
      others < 1 ? 0 : static_cast<std::uint32_t>(one / static_cast<std::uint64_t>(others));
  const int log2 = size_log2 < least_log2 ? least_log2 : size_log2;
  require(out, static_cast<std::size_t>(blocks) * ((std::size_t{1} << log2) + 128), 128,
          &handle->bufHandle);
  out->ginSignalCount = blocks * (2048 + 4 * others);
  out->outGinSignalStart = &handle->signals;
  return ncclSuccess;
}
