// The description of a collective that each perf program gives to the frame.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace pith_perf {

// In elements. `call` is the call's count argument. In place, rank r sends from recv + r *
// send_offset and receives into recv + r * recv_offset.
struct Counts {
  std::size_t send = 0;
  std::size_t recv = 0;
  std::size_t call = 0;
  std::size_t send_offset = 0;
  std::size_t recv_offset = 0;
};

struct Place {
  int rank;
  int ranks;
  int root;
  std::size_t count;  // the call's argument
};

// Elements [offset, offset + count) of the result: the elements of `source` from `first` on, or
// their reduction over all ranks.
struct Block {
  static constexpr int all_ranks = -1;
  std::size_t offset = 0;
  std::size_t count = 0;
  int source = all_ranks;
  std::size_t first = 0;
};

struct CallArgs {
  const void* send;
  void* recv;
  std::size_t count;
  pithDataType_t type;
  pithRedOp_t op;
  Place place;
  pithComm_t comm;
};

struct Collective {
  std::string_view program;
  std::string_view name;  // as in PITH_ALGO
  bool has_op = false;
  bool has_root = false;
  bool in_place = true;  // false: not supported; the out-of-place buffers are used again
  // Whether the compressed form elects and has statistics. Else it codes every value it moves and
  // keeps nothing.
  bool keeps_residual = false;
  // The buffers' counts for a total of `count` elements. `unit`: elements in 16 bytes.
  Counts (*counts)(std::size_t count, std::size_t unit, std::size_t ranks);
  double (*bus_factor)(double ranks);
  std::vector<Block> (*expected)(const Place& place);
  pithResult_t (*call)(const CallArgs& args);
  // With --compress; null: there is no such form.
  pithResult_t (*compressed_call)(const CallArgs& args, pithCompressor_t compressor) = nullptr;
};

// A rank's part of `count` elements: a multiple of 16 bytes, as in nccl-tests.
inline std::size_t part_of(std::size_t count, std::size_t unit, std::size_t ranks) {
  return count / ranks / unit * unit;
}

}  // namespace pith_perf
