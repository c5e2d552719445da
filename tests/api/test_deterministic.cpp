// PITH_DETERMINISTIC=1: the bits of floating-point sums do not depend on what joins the ranks, on
// where they run, or on what kind of memory they give.
#include <sys/mman.h>

#include <array>
#include <vector>

#include "compressed.hpp"
#include "everywhere.hpp"

using namespace ranks;

namespace {

constexpr std::array<std::size_t, 4> counts = {3, 3'000, 40'000, 700'000};
constexpr std::size_t compressed_count = 200'000;
constexpr std::array specs = {"topk:density=0.05,bypass=never", "topk:density=0.05",
                              "exdyna:density=0.02,bypass=never"};
constexpr std::size_t hashes = counts.size() + specs.size();

// What rank 0 of a run has come to, for the test's own process.
class Results {
 public:
  Results()
      : memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    ensure(memory_ != MAP_FAILED, "no shared memory");
  }
  ~Results() { munmap(memory_, bytes); }
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  std::uint64_t& operator[](std::size_t i) { return static_cast<std::uint64_t*>(memory_)[i]; }
  std::vector<std::uint64_t> all() { return {&(*this)[0], &(*this)[0] + hashes}; }

 private:
  static constexpr std::size_t bytes = hashes * sizeof(std::uint64_t);
  void* memory_;
};

std::uint64_t hash_of_floats(const float* values, std::size_t count) {
  return hash_of(reinterpret_cast<const char*>(values), count * sizeof(float), 1);
}

// Registered memory where `registered`, so that ranks of one host would read it in place.
std::uint64_t dense(const Rank& self, pithComm_t comm, std::size_t count, bool registered) {
  std::vector<float> values = gradient(self.rank, 1, count);
  void* shared = nullptr;
  if (registered) {
    ok(pithMemAlloc(&shared, count * sizeof(float)));
    std::memcpy(shared, values.data(), count * sizeof(float));
  }
  auto* data = registered ? static_cast<float*>(shared) : values.data();
  ok(pithAllReduce(data, data, count, pithFloat32, pithSum, comm, nullptr));
  const std::uint64_t hash = hash_of_floats(data, count);
  if (registered) ok(pithMemFree(shared));
  return hash;
}

std::uint64_t compressed(const Rank& self, pithComm_t comm, const char* spec) {
  const Compressor compressor(spec);
  std::vector<float> sum(compressed_count);
  std::uint64_t hash = 0;
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> values = gradient(self.rank, step, compressed_count);
    ok(pithAllReduceCompressed(values.data(), sum.data(), compressed_count, pithFloat32, pithSum,
                               compressor, comm, nullptr));
    hash = mix(hash, hash_of_floats(sum.data(), compressed_count));
  }
  return hash;
}

std::vector<std::uint64_t> results_of(int size, const Setup& setup, bool registered) {
  Results results;
  const std::string wrong = run(size, setup, [&](Rank& self) {
    const Comm comm(self.join());
    std::size_t next = 0;
    const auto note = [&](std::uint64_t hash) {
      self.agree(hash);
      if (self.rank == 0) results[next] = hash;
      ++next;
    };
    for (const std::size_t count : counts) note(dense(self, comm, count, registered));
    for (const char* spec : specs) note(compressed(self, comm, spec));
  });
  CHECK(wrong == "");
  return results.all();
}

}  // namespace

TEST_CASE("the same bits over every link", "[deterministic]") {
  for (const int size : {3, 5}) {
    std::vector<std::uint64_t> expected;
    for (Setup setup : every_link()) {
      setup.environment.emplace_back("PITH_DETERMINISTIC", "1");
      for (const bool registered : {false, true}) {
        INFO(name_of(setup) << ", " << size << " ranks, registered: " << registered);
        const std::vector<std::uint64_t> results = results_of(size, setup, registered);
        if (expected.empty()) expected = results;
        CHECK(results == expected);
      }
    }
  }
}
