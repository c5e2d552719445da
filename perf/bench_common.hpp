// Shared by the benchmarks of collectives of Pith and of its peers, so that every contender is
// timed by the same loop on the same data: options, ranks as pinned processes or threads, table,
// JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace pith_bench {

inline constexpr int ranks_max = 1024;

enum class Collective : std::uint8_t { allreduce, allgather, broadcast, reduce_scatter, alltoall };

struct Settings {
  int ranks = 2;
  Collective collective = Collective::allreduce;
  std::string memory = "private";  // "registered": the contender's own allocator
  std::size_t min_bytes = 8;
  std::size_t max_bytes = std::size_t{64} << 20;
  std::size_t factor = 4;
  std::vector<std::size_t> sizes;  // if not empty, replaces min, max and factor
  std::string iters = "auto";      // calls per batch; auto: as many as fill batch_ms
  int batches = 7;
  double batch_ms = 20;
  std::string json_path;
  std::string transport;
  bool threads = false;
  bool pin = true;
};

// Adds the options that all programs share; bench_collective.hpp has one more.
void add_options(CLI::App& app, Settings& settings);
// The sizes to run, each a whole number of floats; always includes the largest.
std::vector<std::size_t> sizes_bytes(const Settings& settings);

// The ranks of one run. All ranks make the same calls in the same order.
class World {
 public:
  World(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  virtual void barrier() = 0;
  // The largest of the ranks' values, on every rank.
  virtual double max(double value) = 0;
  // Copies rank 0's bytes to every rank; at most 256 bytes.
  virtual void share(void* data, std::size_t bytes) = 0;

 private:
  int rank_;
  int ranks_;
};

// One library's collective: float32, sum, separate send and recv; the root of a broadcast has its
// data in `send` and leaves it there. Errors are exceptions.
class Contender {
 public:
  Contender() = default;
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  // The library's own memory, for --memory registered. The default is private memory.
  virtual void* allocate(std::size_t bytes);
  virtual void release(void* pointer);
  // Called once per size; what a library lets its user prepare is not timed. `count`: elements of
  // all blocks together, where the collective has one for each rank.
  virtual void prepare(const float* send, float* recv, std::size_t count) = 0;
  // One call, complete on return.
  virtual void call() = 0;
  // False: it moves the bytes of an all-reduce, as a bound of what can be reached, and no sum.
  virtual bool has_result() const { return true; }
};

struct Row {
  std::size_t bytes = 0;
  std::int64_t iters = 0;
  int batches = 0;
  double us = 0;  // median over batches of the slowest rank's time per call
  double us_min = 0;
  double us_max = 0;
};

// The contender, as printed and written to JSON.
struct Identity {
  std::string contender;
  std::string library;
  std::string transport;
  std::string setting;
};

// Times every size on this rank; throws if a result is wrong.
std::vector<Row> measure(const Settings& settings, World& world, Contender& contender);
// Prints the table and writes the JSON file if requested. Call it on rank 0.
void report(const Settings& settings, const Identity& identity, const std::vector<Row>& rows);

using RankBody = std::function<void(World&)>;
// Runs body once per rank, each a child process or a thread, and returns the exit status. A rank
// that throws ends the others.
int run_ranks(const Settings& settings, const RankBody& body);
// Parses the command line and runs body; errors are printed and become the exit status.
int bench_main(CLI::App& app, int argc, char** argv, const std::function<int()>& body);

}  // namespace pith_bench
