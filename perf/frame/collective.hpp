// What one perf program tells the frame about its collective.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <string_view>
#include <vector>

namespace pith_perf {

// In elements. `call` is the count that the call takes. In place, rank r sends from recv +
// r * send_offset and receives into recv + r * recv_offset.
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
  std::size_t count;  // as the call takes it
};

// Elements [offset, offset + count) of the result: those that `source` has from `first` on, or
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
  std::string_view name;  // as PITH_ALGO names it
  bool has_op = false;
  bool has_root = false;
  bool can_compress = false;  // takes --compress
  bool in_place = true;       // false: there is none; the buffers of out of place are used again
  // What a total of `count` elements makes of the buffers. `unit`: elements in 16 bytes.
  Counts (*counts)(std::size_t count, std::size_t unit, std::size_t ranks);
  double (*bus_factor)(double ranks);
  std::vector<Block> (*expected)(const Place& place);
  pithResult_t (*call)(const CallArgs& args);
};

// A rank's part of `count` elements where each has one: whole 16 bytes, as in nccl-tests.
inline std::size_t part_of(std::size_t count, std::size_t unit, std::size_t ranks) {
  return count / ranks / unit * unit;
}

}  // namespace pith_perf
