// Ranks for tests of the C API: a body runs once per rank, in processes or threads.
//
// The test process itself never calls Pith. Every run forks, so each starts afresh, forking is
// safe (the parent has one thread), and a crash or a hang is the failure of one run.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pith/pith.h"

namespace ranks {

enum class Way {
  processes,  // one process a rank, each calls InitRank
  threads,    // one process, a thread a rank, each calls InitRank
  all,        // one process calls InitAll, then a thread a rank
  alone       // one process runs the body once, as rank 0 of 1; it joins nothing by itself
};

struct Setup {
  Way way = Way::processes;
  std::string transport;  // PITH_TRANSPORT
  std::vector<std::pair<std::string, std::string>> environment;
  double limit_s = 30;
  bool may_be_killed = false;  // SIGKILL is not a failure of the run
};

// One process that runs the body once.
Setup alone();
// The set-ups that every collective must work on: shm, tcp and, where it was built, ucx between
// processes, local.
std::vector<Setup> every_link();
// Those of them whose ranks are processes, and may be killed.
std::vector<Setup> between_processes();
std::string name_of(const Setup& setup);
// In a rank's process, which leaves a communicator at its end, or has no room for the leak checker.
void forgo_leak_check();

inline constexpr int most_ranks = 1000;
inline constexpr int ids = 8;

struct Shared;

class Rank {
 public:
  Rank(int number, int ranks, Way way, Shared& shared, pithComm_t made)
      : rank(number), size(ranks), way_(way), shared_(shared), made_(made) {}
  const int rank;
  const int size;

  // The communicator of all ranks; the caller destroys it.
  pithComm_t join();
  // The same unique id on all ranks, made by rank 0.
  pithUniqueId id(int which = 0);
  // A barrier that knows nothing of Pith; fails after some seconds.
  void meet();
  // Fails unless all ranks give the same value.
  void agree(std::uint64_t value, std::source_location where = std::source_location::current());
  std::atomic<std::uint64_t>& slot(int rank, int which = 0);
  // This rank is killed now, and the others can ask when that was. Seconds after it; negative
  // before.
  [[noreturn]] void die();
  double since_death_of(int victim);
  // What took longer is late. That is no reason to stop: see run_in_time.
  void in_time(double took_s, double limit_s, std::string_view what,
               std::source_location where = std::source_location::current());
  // Where calls on buffers run: NULL for host memory, else this thread's stream on a device.
  pithStream_t stream() const;
  // The call succeeded, and its stream has passed it.
  void ends(pithResult_t result,
            std::source_location where = std::source_location::current()) const;

 private:
  Way way_;
  Shared& shared_;
  pithComm_t made_;
};

using Body = std::function<void(Rank&)>;

// Empty where all went well, else what failed on which rank, and what was left behind.
std::string run(int size, const Setup& setup, const Body& body);
// Where nothing fails but that ranks are late, the machine may be busy: they are late in earnest
// where they are so three times.
std::string run_in_time(int size, const Setup& setup, const Body& body);

// Checks inside bodies: what fails is reported by run().
using Where = std::source_location;
void ensure(bool condition, std::string_view what, Where where = Where::current());
// The call succeeded.
void ok(pithResult_t result, Where where = Where::current());
// The call failed with this code, and this thread's message contains all these words.
void fails(pithResult_t result, pithResult_t code, std::initializer_list<std::string_view> words,
           Where where = Where::current());

double now_s();
// Waits until the condition holds; fails after `limit_s`.
void wait_until(const std::function<bool()>& condition, double limit_s = 10,
                Where where = Where::current());
void sleep_s(double seconds);

// Destroys what it holds.
class Comm {
 public:
  explicit Comm(pithComm_t comm) : comm_(comm) {}
  ~Comm() { pithCommDestroy(comm_); }
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  operator pithComm_t() const { return comm_; }  // NOLINT(google-explicit-constructor)
  pithComm_t release() { return std::exchange(comm_, nullptr); }

 private:
  pithComm_t comm_;
};

// Bytes at a chosen misalignment, of pithMemAlloc or private; on a device where all buffers are.
class Buffer {
 public:
  Buffer(std::size_t bytes, bool registered, std::size_t offset = 0);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  char* data() const { return memory_ + offset_; }
  std::size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }

 private:
  std::size_t bytes_;
  std::size_t offset_;
  bool registered_;
  char* memory_ = nullptr;
};

// Values that no enumerator has. C callers may pass any; the sanitizer for undefined behaviour lets
// only those through that have no more bits than the largest enumerator.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr std::array<int, 2> wild_types = {14, 15};
inline constexpr std::array<int, 2> wild_ops = {11, 15};
#else
inline constexpr std::array<int, 4> wild_types = {14, 99, -1, -2147483647};
inline constexpr std::array<int, 4> wild_ops = {11, 99, -1, -2147483647};
#endif

std::size_t size_of(pithDataType_t type);
// The bits of a small whole number (up to 63, as far as the type can hold it) in a type; of a
// complex one those of the real part.
std::uint64_t bits_of(unsigned value, pithDataType_t type);
void store(char* at, std::size_t index, pithDataType_t type, unsigned value);
// Compares element by element, as bits.
bool holds(const char* at, std::size_t index, pithDataType_t type, unsigned value);

std::uint64_t mix(std::uint64_t hash, std::uint64_t value);
std::uint64_t hash_of(const char* data, std::size_t bytes, std::uint64_t seed);

}  // namespace ranks
