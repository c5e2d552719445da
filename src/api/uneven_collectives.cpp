// The functions of pith.h whose blocks may differ in size.
#include <fmt/format.h>

#include <limits>

#include "api/submission.hpp"

using namespace pith;
using namespace pith::api;

namespace {

// The arguments that say where the blocks of a buffer lie, an element for each rank. displs NULL:
// one block behind another.
struct BlockArguments {
  const char* counts_name;
  const size_t* counts;
  const char* displs_name = nullptr;
  const size_t* displs = nullptr;
};

Error too_large(const char* function, const BlockArguments& given, std::size_t rank,
                std::size_t begin, std::size_t most) {
  const std::string behind =
      given.displs ? fmt::format(" behind {}[{}], which is {}", given.displs_name, rank, begin)
                   : fmt::format(" behind {} elements of other ranks", begin);
  return {Code::invalid_argument,
          fmt::format("{}: {}[{}] is {}{}, expected an end of at most {}", function,
                      given.counts_name, rank, given.counts[rank], behind, most)};
}

// Where the blocks lie; that all of them fit into the address space, also one behind another.
Error find_blocks(const char* function, const BlockArguments& given, pithDataType_t type,
                  std::span<Range> blocks) {
  if (Error error = check_pointer(function, given.counts_name, given.counts)) return error;
  constexpr auto limit = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  const std::size_t most = limit / size_of(static_cast<DType>(type));
  std::size_t total = 0;
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    const std::size_t size = given.counts[rank];
    const std::size_t begin = given.displs ? given.displs[rank] : total;
    if (size == 0) {
      blocks[rank] = {};
      continue;
    }
    const std::size_t behind = std::max(begin, total);
    if (behind > most || size > most - behind) {
      return too_large(function, given, rank, begin, most);
    }
    blocks[rank] = {begin, size};
    total += size;
  }
  return {};
}

// A buffer without elements is not looked at, and a single rank's block is all of a buffer.
Bytes buffer_of(const void* memory, std::span<Range> blocks, pithDataType_t type) {
  if (total_of(blocks.data(), blocks.size()) == 0) return {};
  Bytes bytes = bytes_at(memory);
  if (blocks.size() > 1) return bytes;
  bytes.data += blocks[0].begin * size_of(static_cast<DType>(type));
  blocks[0].begin = 0;
  return bytes;
}

Bytes buffer_of(const void* memory, std::size_t count) {
  return count > 0 ? bytes_at(memory) : Bytes();
}

// The call's blocks, in memory of the communicator until the next call.
std::span<Range> take_blocks(pithComm_t comm, std::size_t buffers) {
  const auto ranks = static_cast<std::size_t>(comm->communicator->size());
  comm->blocks.assign(buffers * ranks, Range());
  return comm->blocks;
}

// The mean, for choices.
std::size_t mean_of(std::size_t total, std::size_t ranks) {
  return total / ranks + (total % ranks != 0 ? 1 : 0);
}

// Elements of this rank's block, and of all ranks' together.
struct Sizes {
  std::size_t own;
  std::size_t all;
};

// For one of the two buffers, which has a block for each rank.
Expected<Sizes> check_common(const char* function, const BlockArguments& given, const void* send,
                             const void* recv, bool gathers, pithDataType_t type,
                             std::span<Range> blocks, int rank) {
  Error error = find_blocks(function, given, type, blocks);
  if (error) return error;
  const Sizes sizes{blocks[static_cast<std::size_t>(rank)].size,
                    total_of(blocks.data(), blocks.size())};
  error = check_memory(function, "send", send, gathers ? sizes.own : sizes.all);
  if (!error) error = check_memory(function, "recv", recv, gathers ? sizes.all : sizes.own);
  if (error) return error;
  return sizes;
}

Error allgather_v(pithComm_t comm, const void* send, void* recv, const BlockArguments& given,
                  pithDataType_t type, pithStream_t stream) {
  constexpr const char* function = "pithAllGatherV";
  if (Error error = check_call(function, comm, type)) return error;
  const int rank = comm->communicator->rank();
  const std::span<Range> blocks = take_blocks(comm, 1);
  const Expected<Sizes> sizes = check_common(function, given, send, recv, true, type, blocks, rank);
  if (!sizes) return sizes.error();
  CollectiveArgs args{.collective = Collective::allgather,
                      .send = buffer_of(send, sizes->own),
                      .recv = buffer_of(recv, blocks, type),
                      .count = mean_of(sizes->all, blocks.size()),
                      .type = static_cast<DType>(type),
                      .uneven = {nullptr, blocks.data(), blocks.size()}};
  return submit_move(function, comm, args, stream, {send, recv});
}

Error reduce_scatter_v(pithComm_t comm, const void* send, void* recv, const BlockArguments& given,
                       pithDataType_t type, pithRedOp_t op, pithStream_t stream) {
  constexpr const char* function = "pithReduceScatterV";
  Error error = check_call(function, comm, type);
  if (!error) error = check_op(function, op, comm, type);
  if (error) return error;
  const int rank = comm->communicator->rank();
  const std::span<Range> blocks = take_blocks(comm, 1);
  const Expected<Sizes> sizes =
      check_common(function, given, send, recv, false, type, blocks, rank);
  if (!sizes) return sizes.error();
  CollectiveArgs args{.collective = Collective::reduce_scatter,
                      .send = buffer_of(send, blocks, type),
                      .recv = buffer_of(recv, sizes->own),
                      .count = mean_of(sizes->all, blocks.size()),
                      .type = static_cast<DType>(type),
                      .uneven = {blocks.data(), nullptr, blocks.size()}};
  return submit_reduction(function, comm, args, op, stream, {send, recv});
}

Error check_alltoall(const char* function, const void* send, std::span<const Range> out,
                     const void* recv, std::span<const Range> in, bool has_displs, int rank) {
  const std::size_t leaving = total_of(out.data(), out.size());
  const std::size_t arriving = total_of(in.data(), in.size());
  Error error = check_memory(function, "send", send, leaving);
  if (!error) error = check_memory(function, "recv", recv, arriving);
  if (error) return error;
  const auto own = static_cast<std::size_t>(rank);
  if (out[own].size != in[own].size) {
    return {Code::invalid_argument,
            fmt::format("{}: recvcounts[{}] is {}, expected sendcounts[{}], which is {}: this "
                        "rank's own block",
                        function, rank, in[own].size, rank, out[own].size)};
  }
  if (send != recv || leaving == 0 || arriving == 0 || has_displs || out.size() == 1) return {};
  return {Code::invalid_argument,
          fmt::format("{}: recv is send ({}), expected another buffer", function, send)};
}

Error alltoall_v(pithComm_t comm, const void* send, const BlockArguments& sent, void* recv,
                 const BlockArguments& received, pithDataType_t type, pithStream_t stream) {
  constexpr const char* function = "pithAlltoAllV";
  if (Error error = check_call(function, comm, type)) return error;
  const std::span<Range> blocks = take_blocks(comm, 2);
  const std::span<Range> out = blocks.first(blocks.size() / 2);
  const std::span<Range> in = blocks.last(out.size());
  Error error = find_blocks(function, sent, type, out);
  if (!error) error = find_blocks(function, received, type, in);
  if (!error) {
    const bool has_displs = sent.displs || received.displs;
    error = check_alltoall(function, send, out, recv, in, has_displs, comm->communicator->rank());
  }
  if (error) return error;
  CollectiveArgs args{.collective = Collective::alltoall,
                      .send = buffer_of(send, out, type),
                      .recv = buffer_of(recv, in, type),
                      .count = alltoall_count(static_cast<DType>(type)),
                      .type = static_cast<DType>(type),
                      .uneven = {out.data(), in.data(), out.size()}};
  return submit_move(function, comm, args, stream, {send, recv});
}

}  // namespace

pithResult_t pithAllGatherV(const void* send, void* recv, const size_t* recvcounts,
                            const size_t* displs, pithDataType_t type, pithComm_t comm,
                            pithStream_t stream) {
  return concluded(comm, [&] {
    const BlockArguments given{"recvcounts", recvcounts, "displs", displs};
    return allgather_v(comm, send, recv, given, type, stream);
  });
}

pithResult_t pithReduceScatterV(const void* send, void* recv, const size_t* recvcounts,
                                pithDataType_t type, pithRedOp_t op, pithComm_t comm,
                                pithStream_t stream) {
  return concluded(comm, [&] {
    return reduce_scatter_v(comm, send, recv, {"recvcounts", recvcounts}, type, op, stream);
  });
}

pithResult_t pithAlltoAllV(const void* send, const size_t* sendcounts, const size_t* sdispls,
                           void* recv, const size_t* recvcounts, const size_t* rdispls,
                           pithDataType_t type, pithComm_t comm, pithStream_t stream) {
  return concluded(comm, [&] {
    const BlockArguments sent{"sendcounts", sendcounts, "sdispls", sdispls};
    const BlockArguments received{"recvcounts", recvcounts, "rdispls", rdispls};
    return alltoall_v(comm, send, sent, recv, received, type, stream);
  });
}
