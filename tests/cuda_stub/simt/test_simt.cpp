// The emulation of a kernel's threads: what it lets through, what it reports, and that it shows
// what is missing.

#include "catch.hpp"
#include "tests/cuda_stub/simt/cuda_words.hpp"

using pith::simt::Launch;
using Counts = std::vector<std::uint64_t>;

namespace {

constexpr unsigned threads = 64;
constexpr unsigned all = 0xffffffffu;

template <class Body>
std::string run(Body body, std::uint64_t seed = 1, unsigned blocks = 1) {
  Launch launch;
  launch.name = "toy";
  launch.threads = threads;
  launch.blocks = blocks;
  launch.shared_bytes = threads * sizeof(unsigned);
  launch.body = [](const void* args, void* shared) {
    (*static_cast<const Body*>(args))(static_cast<unsigned*>(shared));
  };
  launch.args = &body;
  launch.seed = seed;
  return pith::simt::run(launch);
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Every thread writes a word and reads its neighbour's.
Counts rotated(std::uint64_t seed, bool with_barrier) {
  Counts out(threads);
  const std::string error = run(
      [&](unsigned* shared) {
        shared[threadIdx.x] = threadIdx.x + 1;
        if (with_barrier) __syncthreads();
        out[threadIdx.x] = shared[(threadIdx.x + 1) % threads];
      },
      seed);
  CHECK(error == "");
  return out;
}

// The first thread tells the others a number, twice through one word.
Counts told_twice(std::uint64_t seed, bool with_barrier) {
  Counts out(threads);
  run(
      [&](unsigned* shared) {
        for (unsigned round = 1; round <= 2; ++round) {
          if (threadIdx.x == 0) shared[0] = round;
          __syncthreads();
          out[threadIdx.x] += shared[0];
          if (with_barrier) __syncthreads();
        }
      },
      seed);
  return out;
}

// A block hands a number in plain memory to the next, by a word and two fences.
struct Chain {
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(8);
  Counts numbers = Counts(8);
  std::string run(std::uint64_t seed, bool with_fences) {
    const auto body = [&](unsigned*) {
      if (threadIdx.x != 5) return;
      const unsigned own = blockIdx.x;
      if (own > 0) {
        while (pith::cuda::load_volatile(&words[own - 1]) == 0) {
        }
        if (with_fences) __threadfence();
      }
      numbers[own] = own == 0 ? 1 : numbers[own - 1] * 3;
      if (with_fences) __threadfence();
      pith::cuda::store_volatile(&words[own], 1);
    };
    return ::run(body, seed, static_cast<unsigned>(words.size()));
  }
};

}  // namespace

TEST_CASE("threads meet at barriers, in any order") {
  Counts expected(threads);
  for (unsigned i = 0; i < threads; ++i) expected[i] = (i + 1) % threads + 1;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    REQUIRE(rotated(seed, true) == expected);
    REQUIRE(told_twice(seed, true) == Counts(threads, 3));
  }
}

TEST_CASE("a barrier that is missing shows in the results of some order", "[races]") {
  Counts expected(threads);
  for (unsigned i = 0; i < threads; ++i) expected[i] = (i + 1) % threads + 1;
  int wrong_reads = 0;
  int overwritten = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    wrong_reads += rotated(seed, false) != expected ? 1 : 0;
    overwritten += told_twice(seed, false) != Counts(threads, 3) ? 1 : 0;
  }
  CHECK(wrong_reads == 20);
  CHECK(overwritten > 10);
}

TEST_CASE("blocks wait for each other, and shared memory is a block's own") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Chain chain;
    REQUIRE(chain.run(seed, true) == "");
    REQUIRE(chain.numbers.back() == 2187);
    Counts sums(9);
    const auto body = [&](unsigned* shared) {
      if (threadIdx.x == 3) {
        shared[0] -= 0xcdcdcdcd;
      }
      __syncthreads();
      atomicAdd(&shared[0], blockIdx.x + 1);
      __syncthreads();
      if (threadIdx.x == 9) sums[blockIdx.x] = shared[0];
    };
    REQUIRE(run(body, seed, 9) == "");
    for (unsigned block = 0; block < 9; ++block) REQUIRE(sums[block] == threads * (block + 1));
  }
}

TEST_CASE("what a device would hang at is reported") {
  const auto half = [] { return threadIdx.x % 32 < 16; };
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::string error = run(
        [](unsigned*) {
          if (threadIdx.x != 9) __syncthreads();
        },
        seed);
    CHECK(contains(error, "toy: block 0, thread "));
    CHECK(contains(error, "ended"));
    error = run(
        [&](unsigned*) {
          if (half()) __shfl_up_sync(all, 1u, 1);
        },
        seed);
    CHECK(contains(error, "ended"));
    error = run(
        [&](unsigned*) {
          if (half()) __shfl_up_sync(all, 1u, 1);
          __syncthreads();
        },
        seed);
    CHECK(contains(error, "barrier"));
    error =
        run([&](unsigned*) { half() ? __ballot_sync(all, 1) : __shfl_up_sync(all, 1u, 1); }, seed);
    CHECK(contains(error, "another operation"));
    error = run([](unsigned*) { threadIdx.x < 32 ? __syncthreads() : void(__syncthreads_or(1)); },
                seed);
    CHECK(contains(error, "another barrier"));
    error = run([](unsigned*) { __ballot_sync(0xffff, 1); }, seed);
    CHECK(contains(error, "some lanes"));
    CHECK(contains(error, "seed"));
  }
  CHECK(rotated(1, true).size() == threads);  // and the next launch is well
}

TEST_CASE("a launch ends when who runs it says so") {
  int asked = 0;
  Launch launch;
  launch.threads = 32;
  launch.body = [](const void*, void*) {
    for (;;) __nanosleep(1);
  };
  launch.of = &asked;
  launch.goes_on = [](void* of) { return ++*static_cast<int*>(of) < 3; };
  CHECK(pith::simt::run(launch) == "");
  CHECK(asked == 3);
}

// The rest is for ThreadSanitizer, which is to report each of them.
TEST_CASE("race: a barrier is missing", "[.]") { rotated(1, false); }
TEST_CASE("race: a word is told anew", "[.]") { told_twice(1, false); }
TEST_CASE("race: fences are missing", "[.]") {
  Chain chain;
  chain.run(1, false);
}
TEST_CASE("race: a shuffle is no barrier", "[.]") {
  run([](unsigned* shared) {
    shared[threadIdx.x] = 1;
    __shfl_up_sync(all, 1u, 1);
    if (shared[threadIdx.x ^ 1] > 1) __nanosleep(1);
  });
}
TEST_CASE("race: blocks of one place", "[.]") {
  unsigned word = 0;
  run(
      [&](unsigned*) {
        if (threadIdx.x == blockIdx.x) word = blockIdx.x;
      },
      1, threads);
}
