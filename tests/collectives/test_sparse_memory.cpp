// Memory that runs out at any place of a compressed call: an error on all ranks, and no gradient is
// lost.
//
// What calls take for their work is aligned or an array; what the simulator takes is neither, so
// that only calls find no memory here.
#include <cstdlib>
#include <new>

#include "tests/catch.hpp"
#include "tests/collectives/mode_program.hpp"

namespace {

// Allocations until one fails; negative: none does.
int until_work_fails = -1;
int until_any_fails = -1;
std::size_t taken_for_work = 0;  // bytes, ever

bool runs_out(int& countdown) { return countdown >= 0 && countdown-- == 0; }

void* checked(void* memory) {
  if (!memory) throw std::bad_alloc();
  return memory;
}

void* allocate_array(std::size_t size) {
  if (runs_out(until_work_fails)) throw std::bad_alloc();
  taken_for_work += size;
  return checked(std::malloc(size));
}

}  // namespace

void* operator new(std::size_t size) {
  if (runs_out(until_any_fails)) throw std::bad_alloc();
  return checked(std::malloc(size));
}
void* operator new[](std::size_t size) { return allocate_array(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  if (runs_out(until_work_fails)) throw std::bad_alloc();
  taken_for_work += size;
  const auto unit = static_cast<std::size_t>(alignment);
  return checked(std::aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
// What std::stable_sort asks for; a sanitizer's own would not go with free().
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
// gcc 12 takes one that is inlined, beside a new that is not, for a mismatch.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace pith::test {

namespace {

// One call in which the n-th allocation fails. False: there are not so many.
bool run_out(const SparseCase& c, const Mode& mode, int calls_before, int n, std::string& failure) {
  ModeProgram modes(c, mode);
  SparseProgram& program = modes.program;
  World world(world_of(c));
  failure += program.begin(world, calls_before);
  const std::vector<std::vector<float>> all = program.owed_by_all();
  until_work_fails = n;
  const std::vector<Error> errors = modes.step(world);
  const bool failed = until_work_fails < 0;
  until_work_fails = -1;
  HostCompute host;
  for (int r = 0; r < c.ranks && failed; ++r) {
    const Error& error = errors[static_cast<std::size_t>(r)];
    const std::string message = error.message();
    // Whoever ended well before takes it back when the survivors agree.
    if (error && message.find("out of memory") == std::string::npos) failure += message;
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      if (!error) {
        program.compressor(r, t).return_after(host, static_cast<std::uint32_t>(calls_before));
      }
      const auto& expected = all[static_cast<std::size_t>(r) * c.counts.size() + t];
      if (about_equal(program.residual(r, t), expected, most_sent(c, expected))) continue;
      failure += fmt::format("rank {}: gradients are lost in tensor {}\n", r, t);
    }
  }
  failure += world.leaks();
  return failed;
}

std::string run_out_everywhere(const SparseCase& c, int calls_before, const Mode& mode = {}) {
  std::string failure;
  for (int n = 0; run_out(c, mode, calls_before, n, failure) && failure.empty(); ++n) {
  }
  return failure;
}

}  // namespace

TEST_CASE("memory that runs out in a compressed call ends it everywhere", "[sparse][memory]") {
  for (const char* spec : {"topk",
                           "topk:exchange=ring",
                           "topk:exchange=split",
                           "topk:exchange=recursive-doubling",
                           "spardl:values=bf16",
                           "ok-topk",
                           "gtopk:values=bf16",
                           "threshold:value=0.05",
                           "sidco",
                           "dgc",
                           "clt-k:beta=0.5",
                           "adaptive:values=bf16",
                           "ar-topk",
                           "ar-topk:election=variance",
                           "ar-topk:election=variance-lagged,values=bf16",
                           "ar-topk:reduction=tree",
                           "exdyna",
                           "exdyna:values=bf16,rule=intended",
                           "micro:reduction=ring",
                           "deft",
                           "deft:values=bf16",
                           "bf16",
                           "int8",
                           "efsign",
                           "onebit",
                           "powersgd:rank=1",
                           "arc-topk",
                           "atomo:rank=1",
                           "none"}) {
    SparseCase c;
    c.ranks = 3;
    c.counts = {300, 0, 80};
    c.spec = spec;
    for (const int calls_before : {0, 2}) {
      INFO(spec << " after " << calls_before << " calls");
      CHECK(run_out_everywhere(c, calls_before) == "");
    }
  }
}

TEST_CASE("memory that runs out while pairs are written leaves all gradients", "[sparse][memory]") {
  for (const char* spec : {"powersgd:rank=1", "atomo:rank=1", "efsign", "topk", "none"}) {
    SparseCase c;
    c.ranks = 2;
    c.counts = {1000, 0, 80};
    c.spec = spec;
    INFO(spec);
    CHECK(run_out_everywhere(c, 1, {.pairs = true}) == "");
  }
}

TEST_CASE("memory that runs out in a streamed call ends it everywhere", "[sparse][memory]") {
  for (const char* spec : {"topk:density=0.01,values=bf16", "ar-topk:density=0.01,values=bf16"}) {
    SparseCase c;
    c.ranks = 2;
    c.counts = {140000};
    c.spec = spec;
    c.chunk_bytes = 1024;
    for (const int calls_before : {0, 2}) {
      INFO(spec << " after " << calls_before << " calls");
      CHECK(run_out_everywhere(c, calls_before) == "");
    }
  }
}

TEST_CASE("memory that runs out in a call of several rounds ends it everywhere",
          "[sparse][memory]") {
  // More ranks than two: what has been added lies in more pieces than memory is there for.
  for (const char* spec : {"exdyna:density=0.05", "exdyna:density=0.05,values=bf16"}) {
    SparseCase c;
    c.ranks = 4;
    c.counts = {3000, 0, 80};
    c.spec = spec;
    c.chunk_bytes = 64;
    for (const int calls_before : {0, 2}) {
      c.in_place = calls_before == 0;
      INFO(spec << " after " << calls_before << " calls");
      CHECK(run_out_everywhere(c, calls_before) == "");
    }
  }
}

// Not for as many as pieces have elements, of every other rank.
TEST_CASE("DEFT makes room for the indices that come", "[deft][memory]") {
  SparseCase c;
  c.ranks = 8;
  c.counts = {std::size_t{1} << 18};
  c.spec = "deft:density=0.001";
  SparseProgram program(c);
  SimConfig config;
  config.ranks = c.ranks;
  World world(config);
  program.draw(0);
  const std::size_t before = taken_for_work;
  REQUIRE(program.step(world) == "");
  const std::size_t vectors = (taken_for_work - before) / (c.counts[0] * sizeof(float));
  INFO("memory of " << vectors << " vectors");
  CHECK(vectors < 4);
}

TEST_CASE("memory that runs out at the beginning of a call loses no gradient", "[sparse][memory]") {
  for (int n = 0, failures = 1; failures > 0; ++n) {
    SparseCase c;
    c.ranks = 2;
    c.counts = {300, 80};
    c.spec = "exdyna:density=0.1";
    SparseProgram program(c);
    SimConfig config;
    config.ranks = c.ranks;
    World world(config);
    program.draw(0);
    REQUIRE(program.step(world) == "");
    program.draw(1);
    const std::vector<float> all[2] = {program.owed(0, 0), program.owed(0, 1)};
    std::vector<CompressedTensor> tensors(2);
    for (std::size_t t = 0; t < 2; ++t) {
      tensors[t].compressor = &program.compressor(0, t);
      tensors[t].send = reinterpret_cast<const std::byte*>(program.gradient(0, t).data());
      tensors[t].count = c.counts[t];
    }
    HostCompute host;
    until_any_fails = n;
    absorb_gradients(host, 2, tensors);
    failures = until_any_fails < 0 ? 1 : 0;
    until_any_fails = -1;
    for (std::size_t t = 0; t < 2; ++t) {
      CHECK(about_equal(program.residual(0, t), all[t]));
      CHECK(program.compressor(0, t).step == 1);
    }
  }
}

}  // namespace pith::test
