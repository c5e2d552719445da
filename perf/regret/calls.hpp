// The calls of a cell, one for each candidate that can serve it, on this rank's buffers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frame/memory.hpp"
#include "frame/team.hpp"
#include "regret/candidates.hpp"
#include "regret/replay.hpp"

namespace pith_perf {

// What compressed calls are called beside the dense collectives.
inline constexpr std::string_view sparse_name = "sparse_allreduce";

struct Cell {
  std::string collective;
  std::size_t bytes = 0;  // of the vector, or of all blocks together
  double density = 0;     // of a compressed call; 0: dense
};

// Of float32, in a call's argument: the vector's or a block's, at least one.
std::size_t count_of(const Cell& cell, int ranks);

class Calls {
 public:
  struct Contestant {
    std::string name;
    const pith::Algorithm* algorithm = nullptr;  // null: the library's choice
    Replay::Call call;
    bool learns = false;  // makes calls before it is timed
  };

  // Creates the candidates' communicators, and buffers for vectors of up to `bytes_max`. Their
  // memory is pithMemAlloc's if `registered`.
  Calls(const std::vector<Candidate>& candidates, const Team& control, std::size_t bytes_max,
        bool registered, bool sparse);

  // The default is first, and again second. Valid until the next cell's.
  std::vector<Contestant> of(const Cell& cell);
  // Throws std::runtime_error if a contestant's result is wrong.
  void check(const Cell& cell, const Contestant& contestant);
  // What the library chose in the last call of a cell: "two_shot"; "split", "dense".
  std::string chosen(const Cell& cell) const;
  void close();

 private:
  struct End {
    void operator()(pithCompressor_t compressor) const { pithCompressorDestroy(compressor); }
  };
  using Compressor = std::unique_ptr<pithCompressor, End>;

  std::vector<Contestant> dense(const Cell& cell);
  std::vector<Contestant> sparse(const Cell& cell);
  Contestant compressed(const Cell& cell, std::string name, const std::string& keys,
                        const Team& team);

  const std::vector<Candidate>& candidates_;
  const Team& control_;
  std::vector<std::unique_ptr<Team>> teams_;  // by candidate
  Memory send_;
  Memory recv_;
  Memory gradient_;
  std::vector<Compressor> compressors_;  // of the present cell, the default's first
};

}  // namespace pith_perf
