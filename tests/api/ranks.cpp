#include "ranks.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "left_over.hpp"
#include "memory_kind.hpp"

namespace ranks {

// What the processes of one run share; all zero at first.
struct Shared {
  std::atomic<int> arrived;
  std::atomic<unsigned> generation;
  std::array<std::atomic<int>, ids> id_ready;
  std::array<pithUniqueId, ids> id;
  std::array<std::array<std::atomic<std::uint64_t>, 8>, most_ranks> slots;
  std::array<std::atomic<double>, most_ranks> died;
  std::array<std::array<char, 1024>, most_ranks> failure;
  std::array<std::array<char, 256>, most_ranks> late;
};

namespace {

constexpr double meeting_limit_s = 20;
constexpr double grace_s = 3;  // for the other ranks, once one has failed

// Sanitizers make everything slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double patience = 3;
#else
constexpr double patience = 1;
#endif
constexpr int tries = 3;

// How many times slower than others this machine is: PITH_TEST_SLOW, for emulated ones.
double slowness() {
  const char* text = std::getenv("PITH_TEST_SLOW");
  return text ? std::max(1.0, std::strtod(text, nullptr)) : 1;
}

template <class Room>
void put(Room& rooms, int rank, const std::string& text) {
  auto& room = rooms[static_cast<std::size_t>(rank)];
  std::strncpy(room.data(), text.c_str(), room.size() - 1);
}

void put_failure(Shared& shared, int rank, const std::string& text) {
  put(shared.failure, rank, text);
}

void set_environment(const Setup& setup) {
  setenv("PITH_IFNAME", "lo", 1);  // tests open nothing to a network
  if (!setup.transport.empty()) setenv("PITH_TRANSPORT", setup.transport.c_str(), 1);
  for (const auto& [name, value] : setup.environment) setenv(name.c_str(), value.c_str(), 1);
}

bool run_one(Rank rank, Shared& shared, const Body& body) {
  try {
    body(rank);
    return true;
  } catch (const std::exception& exception) {
    put_failure(shared, rank.rank, exception.what());
    return false;
  }
}

bool run_threads(int size, Way way, Shared& shared, const Body& body) {
  std::vector<pithComm_t> made(static_cast<std::size_t>(size), nullptr);
  if (way == Way::all && pithCommInitAll(made.data(), size, nullptr) != pithSuccess) {
    put_failure(shared, 0, std::string("InitAll: ") + pithGetLastError(nullptr));
    return false;
  }
  std::atomic<bool> good{true};
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(r, size, way, shared, made[static_cast<std::size_t>(r)]);
      if (!run_one(rank, shared, body)) good = false;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return good;
}

bool checks_leaks = true;

// In the child. Leaves by exit, so that the library's own end is tested too.
[[noreturn]] void run_child(int rank, int size, const Setup& setup, Shared& shared,
                            const Body& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  set_environment(setup);
  // The leak checker's tracer crashes now and then among the threads of UCX.
  if (setup.transport == "ucx") forgo_leak_check();
  const bool in_threads = setup.way == Way::threads || setup.way == Way::all;
  const bool good = in_threads
                        ? run_threads(size, setup.way, shared, body)
                        : run_one(Rank(rank, size, setup.way, shared, nullptr), shared, body);
  std::exit(good ? 0 : 1);
}

std::string fate_of(int status, const Setup& setup) {
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGKILL && setup.may_be_killed) return {};
    return std::string("ended by signal ") + std::to_string(WTERMSIG(status));
  }
  if (WEXITSTATUS(status) == 0) return {};
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

// Waits for all children, kills what is left at the limit; the fate of each.
std::vector<std::string> wait_for(std::vector<pid_t> children, const Setup& setup) {
  std::vector<std::string> fates(children.size());
  double limit = now_s() + setup.limit_s * slowness();
  std::size_t left = children.size();
  while (left > 0) {
    const bool over = now_s() > limit;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (children[i] == 0) continue;
      if (over) kill(children[i], SIGKILL);
      int status = 0;
      if (waitpid(children[i], &status, over ? 0 : WNOHANG) <= 0) continue;
      fates[i] = over ? "hung" : fate_of(status, setup);
      if (!fates[i].empty()) limit = std::min(limit, now_s() + grace_s);
      children[i] = 0;
      --left;
    }
    if (left > 0) sleep_s(0.001);
  }
  return fates;
}

std::string at(Where where, const std::string& what) {
  std::string file = where.file_name();
  file.erase(0, file.rfind('/') + 1);
  return file + ":" + std::to_string(where.line()) + ": " + what;
}

[[noreturn]] void fail_at(const std::string& what, Where where) {
  throw std::runtime_error(at(where, what));
}

struct Outcome {
  std::string failed;
  std::string late;
};

Outcome run_once(int size, const Setup& setup, const Body& body) {
  void* mapping =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return {"no shared mapping", {}};
  auto& shared = *static_cast<Shared*>(mapping);
  const LeftOver left_over;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int r = 0; r < (setup.way == Way::processes ? size : 1); ++r) {
    const pid_t child = fork();
    if (child == 0) run_child(r, size, setup, shared, body);
    children.push_back(child);
  }
  const std::vector<std::string> fates = wait_for(children, setup);
  Outcome outcome;
  for (int r = 0; r < size; ++r) {
    const auto rank = static_cast<std::size_t>(r);
    const std::string name = "rank " + std::to_string(r) + ": ";
    const std::string failure = shared.failure[rank].data();
    const std::string fate = rank < fates.size() ? fates[rank] : std::string();
    const std::string late = shared.late[rank].data();
    if (!failure.empty() || !fate.empty()) {
      outcome.failed += name + (failure.empty() ? fate : failure) + "\n";
    }
    if (!late.empty()) outcome.late += name + late + "\n";
  }
  outcome.failed += left_over.find(children, setup.may_be_killed, setup.limit_s * slowness());
  munmap(mapping, sizeof(Shared));
  return outcome;
}

}  // namespace

Setup alone() {
  Setup setup;
  setup.way = Way::alone;
  return setup;
}

std::vector<Setup> between_processes() {
  std::vector<Setup> setups = every_link();
  std::erase_if(setups, [](const Setup& setup) { return setup.way == Way::all; });
  for (Setup& setup : setups) setup.may_be_killed = true;
  return setups;
}

void forgo_leak_check() { checks_leaks = false; }

std::string name_of(const Setup& setup) {
  constexpr std::array names = {"processes", "threads", "InitAll", "alone"};
  return setup.transport + " " + names[static_cast<std::size_t>(setup.way)];
}

std::string run(int size, const Setup& setup, const Body& body) {
  const Outcome outcome = run_once(size, setup, body);
  return outcome.failed + outcome.late;
}

std::string run_in_time(int size, const Setup& setup, const Body& body) {
  Outcome outcome;
  for (int turn = 0; turn < tries; ++turn) {
    outcome = run_once(size, setup, body);
    if (!outcome.failed.empty() || outcome.late.empty()) break;
  }
  return outcome.failed + outcome.late;
}

pithComm_t Rank::join() {
  if (way_ == Way::all) return made_;
  pithComm_t comm = nullptr;
  ok(pithCommInitRank(&comm, size, id(), rank));
  return comm;
}

pithUniqueId Rank::id(int which) {
  const auto at = static_cast<std::size_t>(which);
  if (rank == 0 && shared_.id_ready[at] == 0) {
    ok(pithGetUniqueId(&shared_.id[at]));
    shared_.id_ready[at] = 1;
  }
  wait_until([&] { return shared_.id_ready[at] != 0; });
  return shared_.id[at];
}

void Rank::meet() {
  const unsigned generation = shared_.generation;
  if (shared_.arrived.fetch_add(1) + 1 == size) {
    shared_.arrived = 0;
    ++shared_.generation;
    return;
  }
  wait_until([&] { return shared_.generation != generation; }, meeting_limit_s);
}

void Rank::agree(std::uint64_t value, Where where) {
  slot(rank, 7) = value;
  meet();
  for (int r = 0; r < size; ++r) {
    if (slot(r, 7) != value) fail_at("differs from rank " + std::to_string(r), where);
  }
  meet();
}

std::atomic<std::uint64_t>& Rank::slot(int of, int which) {
  return shared_.slots[static_cast<std::size_t>(of)][static_cast<std::size_t>(which)];
}

void Rank::die() {
  shared_.died[static_cast<std::size_t>(rank)] = now_s();
  raise(SIGKILL);
  std::abort();  // not reached
}

double Rank::since_death_of(int victim) {
  const double died = shared_.died[static_cast<std::size_t>(victim)];
  return died == 0 ? -1 : now_s() - died;
}

void Rank::in_time(double took_s, double limit_s, std::string_view what, Where where) {
  if (took_s <= limit_s * patience * slowness()) return;
  put(shared_.late, rank,
      at(where, std::string(what) + " took " + std::to_string(took_s) + " s, expected " +
                    std::to_string(limit_s)));
}

void ensure(bool condition, std::string_view what, Where where) {
  if (!condition) fail_at(std::string(what), where);
}

void ok(pithResult_t result, Where where) {
  if (result == pithSuccess) return;
  fail_at(std::string(pithGetErrorString(result)) + ": " + pithGetLastError(nullptr), where);
}

void fails(pithResult_t result, pithResult_t code, std::initializer_list<std::string_view> words,
           Where where) {
  const std::string text = pithGetLastError(nullptr);
  if (result != code) {
    fail_at("code " + std::to_string(result) + " and not " + std::to_string(code) + ": " +
                (result == pithSuccess ? "" : text),
            where);
  }
  for (const std::string_view word : words) {
    if (text.find(word) != std::string::npos) continue;
    fail_at("\"" + text + "\" does not say \"" + std::string(word) + "\"", where);
  }
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void wait_until(const std::function<bool()>& condition, double limit_s, Where where) {
  const double limit = now_s() + limit_s * slowness();
  while (!condition()) {
    if (now_s() > limit) fail_at("waited in vain", where);
    std::this_thread::yield();
  }
}

Buffer::Buffer(std::size_t bytes, bool registered, std::size_t offset)
    : bytes_(bytes),
      offset_(offset),
      registered_(registered),
      memory_(allocate(bytes + offset, registered)) {
  std::memset(memory_, 0xAB, bytes + offset);
}

Buffer::~Buffer() { release(memory_, registered_); }

pithStream_t Rank::stream() const { return stream_of_thread(); }

void Rank::ends(pithResult_t result, Where where) const {
  ok(result, where);
  wait_for_stream();
}

std::size_t size_of(pithDataType_t type) {
  constexpr std::array<std::size_t, 14> sizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1, 8, 16};
  return sizes[static_cast<std::size_t>(type)];
}

std::uint64_t bits_of(unsigned value, pithDataType_t type) {
  struct Format {
    int mantissa;
    int bias;
  };
  constexpr std::array<Format, 14> formats = {{{},
                                               {},
                                               {},
                                               {},
                                               {},
                                               {},
                                               {10, 15},
                                               {23, 127},
                                               {52, 1023},
                                               {7, 127},
                                               {3, 7},
                                               {2, 15},
                                               {23, 127},
                                               {52, 1023}}};
  const Format format = formats[static_cast<std::size_t>(type)];
  if (format.bias == 0 || value == 0) return value;
  const int exponent = std::bit_width(value) - 1;
  const int shift = format.mantissa - exponent;
  const std::uint64_t wide = value;
  const std::uint64_t fraction = shift >= 0 ? wide << shift : wide >> -shift;
  const auto scale = static_cast<std::uint64_t>(format.bias + exponent - 1);
  return (scale << format.mantissa) + fraction;
}

void store(char* at, std::size_t index, pithDataType_t type, unsigned value) {
  const std::array<std::uint64_t, 2> bits = {bits_of(value, type)};
  std::memcpy(at + index * size_of(type), &bits, size_of(type));
}

bool holds(const char* at, std::size_t index, pithDataType_t type, unsigned value) {
  const std::array<std::uint64_t, 2> bits = {bits_of(value, type)};
  return std::memcmp(at + index * size_of(type), &bits, size_of(type)) == 0;
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 31);
}

std::uint64_t hash_of(const char* data, std::size_t bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, std::min(sizeof word, bytes - i));
    seed = mix(seed, word);
  }
  return seed;
}

}  // namespace ranks

#if defined(__SANITIZE_ADDRESS__)
// Asked by the leak checker, which is a library, at the end of a process.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return ranks::checks_leaks ? 0 : 1;
}
#endif
