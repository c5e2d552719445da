// What compressed calls read: coded indices, every message of every scheme and of coded moves, and
// saved states.
#include <cmath>
#include <memory>
#include <set>

#include "compress/gossip/choco_scheme.hpp"
#include "compress/saved_state.hpp"
#include "fuzz_target.hpp"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "tests/collectives/coded_program.hpp"
#include "tests/collectives/host_layouts.hpp"
#include "tests/compress/saved_checksum.hpp"

namespace pith::fuzz {

namespace {

using test::SparseCase;
using test::SparseProgram;

constexpr int ranks = 3, liar = 1;

struct Scheme {
  const char* spec;
  std::vector<std::size_t> counts;
  int honest_calls;  // before the one in which a rank lies
  std::vector<int> hosts = {};
};

// Codings of all values, and factors; in one parcel or round and in several.
std::vector<Scheme> whole_schemes() {
  return {
      {"bf16", {300}, 0},
      {"int8", {300, 0, 40}, 0},
      {"fp16", {300, 0, 40}, 0},
      {"fp8", {300, 0, 40}, 0},
      {"fp8:format=e5m2,feedback=1", {300, 40}, 1},
      {"int8:map=dynamic,feedback=1", {300, 40}, 1},
      {"signum", {300, 40}, 1},
      {"bounded", {300, 0, 40}, 0},
      {"bounded:abs=0.1,feedback=1", {300, 40}, 1},
      {"lossless", {300, 0, 40}, 0},
      {"qsgd:bits=2", {300, 40}, 1},
      {"natural", {300}, 0},
      {"sign", {300}, 0},
      {"efsign", {300, 40}, 1},
      {"terngrad", {300}, 0},
      {"onebit", {300, 0, 40}, 1},
      {"3lc", {300, 40}, 1},
      {"powersgd:rank=1", {300, 0, 40}, 1},
      {"atomo:rank=1", {300, 0, 40}, 1},
      {"atomo", {3000, 40}, 0},
      {"none", {300}, 0},
  };
}

// Each exchange and election, likewise.
std::vector<Scheme> electing_schemes() {
  return {
      {"topk:density=0.1", {300, 0, 40}, 1},
      {"topk:density=0.01,values=bf16", {140000}, 1},
      {"topk:density=0.1,exchange=ring", {300, 40}, 0},
      {"topk:density=0.1,exchange=split", {300, 40}, 0},
      {"topk:density=0.1,values=int4", {300, 0, 40}, 1},
      {"topk:density=0.01,values=int8,exchange=ring", {140000}, 1},
      {"topk:density=0.1,exchange=recursive-doubling", {300, 40}, 0},
      {"spardl:density=0.1,values=bf16", {300, 0, 40}, 1},
      {"ok-topk:density=0.1", {300, 40}, 0},
      {"gtopk:density=0.1", {300, 40}, 0},
      {"gtopk:density=0.1,values=bf16", {300, 0, 40}, 1},
      {"ar-topk:density=0.1", {300, 0, 40}, 1},
      {"ar-topk:density=0.01,values=f16", {140000}, 1},
      {"ar-topk:density=0.1,election=variance", {300}, 0},
      {"ar-topk:density=0.1,election=variance-lagged,values=bf16", {300}, 0},
      {"ar-topk:density=0.1,reduction=tree", {300}, 1},
      {"exdyna:density=0.05", {3000, 200}, 0},
      {"exdyna:density=0.05,values=bf16", {3000, 200}, 3},
      {"exdyna:density=0.05,rule=intended,reduction=ring", {3000}, 1},
      {"micro:density=0.05", {3000}, 3},
      {"exdyna:density=0.01", {30000, 200}, 2},
      {"micro:density=0.01,values=bf16", {30000}, 3},
      {"randomk:density=0.1", {300, 0, 40}, 1},
      {"arc-topk:density=0.1", {3000, 0, 40}, 1},
      {"arc-topk:density=0.1,sketch=1,values=bf16", {300, 40}, 0},
      {"threshold:value=0.1", {300, 0, 40}, 0},
      {"wangni:density=0.1,values=bf16", {300, 40}, 2},
      {"sidco:density=0.1", {300, 0, 40}, 1},
      {"adaptive:density=0.1,values=bf16", {300, 0, 40}, 1},
      {"dgc:density=0.1,warmup=1", {300, 40}, 1},
      {"clt-k:density=0.1,beta=0.5", {300, 40}, 1},
      {"choco:density=0.1,values=bf16", {300, 0, 40}, 1},
      {"choco:density=0.1,graph=complete", {300, 40}, 0},
      {"choco:density=0.1,graph=stated", {300, 40}, 2},
      {"deft:density=0.05", {3000, 200}, 0},
      {"deft:density=0.05,values=bf16", {3000, 0, 200}, 2},
      // Calls that begin with an agreement. Of a narrow range no time chooses another density.
      {"topk:density=0.1..0.101,bypass=never", {300, 0, 40}, 1},
      {"ar-topk:density=0.1..0.101,objective=paper,bypass=never", {300, 40}, 2},
      {"exdyna:density=0.05..0.0501,bypass=never", {3000, 200}, 1},
      {"auto:schemes=ar-topk,density=0.1..0.101,bypass=never", {300, 40}, 1},
      {"topk:density=0.1,bypass=auto", {300, 40}, 1},
      {"topk:density=0.1,hierarchy=host", {300, 40}, 1, {0, 1, 1}},
      {"topk:density=0.1,hierarchy=host", {300, 40}, 1, {0, 1, 0}},
      {"exdyna:density=0.05,hierarchy=host", {3000}, 1, {1, 0, 0}},
      {"deft:density=0.05,hierarchy=host", {3000}, 1, {0, 1, 0}},
      {"ar-topk:density=0.1,hierarchy=host", {300, 40}, 1, {0, 1, 1}},
      {"micro:density=0.05,hierarchy=host", {3000}, 1, {0, 1, 1}},
  };
}

std::vector<Scheme> built_schemes() {
  std::vector<Scheme> all = whole_schemes();
  std::ranges::move(electing_schemes(), std::back_inserter(all));
  // But those for which this build lacks something.
  std::erase_if(all, [](const Scheme& scheme) { return !Spec::parse(scheme.spec); });
  for (const pith::Scheme* scheme : pith::schemes()) {  // none is forgotten
    expect(!scheme->lacks.empty() || std::ranges::any_of(all, [scheme](const Scheme& one) {
      return &Spec::parse(one.spec)->stated() == scheme;
    }));
  }
  return all;
}

const std::vector<Scheme>& schemes() {
  static const std::vector<Scheme> built = built_schemes();
  return built;
}

bool averages(const Scheme& scheme) {
  return Spec::parse(scheme.spec)->scheme->averages_parameters;
}

SparseCase case_of(const Scheme& scheme) {
  SparseCase c;
  c.ranks = ranks;
  c.counts = scheme.counts;
  c.spec = scheme.spec;
  c.chunk_bytes = 1024;
  c.hosts = scheme.hosts;
  c.average = averages(scheme);
  return c;
}

// A rank's compressors, with a path as the graph of gossip where one is to be stated.
std::unique_ptr<SparseProgram> program_of(const SparseCase& c) {
  auto program = std::make_unique<SparseProgram>(c);
  for (int r = 0; r < ranks; ++r) {
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      const auto graph = StatedGraph::of(std::vector{0, 1}, std::vector{1, 2});
      expect(!state_graph(program->compressor(r, t), *graph));
    }
  }
  return program;
}

// --- messages -----------------------------------------------------------------------------------

struct Message {
  int to = 0;
  std::uint16_t lane = 0;
  std::uint32_t step = 0;
  std::string bytes;
};

// to, lane, step, length in two bytes, and so many bytes.
void pack(std::string& out, const Message& message) {
  out += static_cast<char>(message.to);
  for (const std::size_t value : {std::size_t{message.lane}, message.bytes.size()}) {
    out += static_cast<char>(value & 0xff);
    out += static_cast<char>(value >> 8);
  }
  out += static_cast<char>(message.step);
  out += message.bytes;
}

std::vector<Message> unpack(Bites& bites) {
  constexpr std::size_t most = 400;
  const auto word = [&] {
    const std::size_t low = bites.byte();
    return low + (std::size_t{bites.byte()} << 8);
  };
  std::vector<Message> messages;
  while (!bites.empty() && messages.size() < most) {
    Message message;
    message.to = bites.byte() % ranks;
    message.lane = static_cast<std::uint16_t>(word());
    const std::size_t length = word();
    message.step = bites.byte();
    message.bytes = bites.bytes(length);
    if (message.to != liar) messages.push_back(std::move(message));
  }
  return messages;
}

Task<Error> lie(Call& call, std::vector<Message>& messages) {
  for (Message& message : messages) {
    const Bytes bytes{reinterpret_cast<std::byte*>(message.bytes.data()), message.bytes.size()};
    Error error = co_await call.send(message.to, message.lane, message.step, bytes);
    if (error) co_return error;
  }
  co_return Error();
}

void call_honestly(SparseProgram& program, World& world) {
  const bool same = !program.compressor(0).spec().scheme->averages_parameters;
  expect((same ? program.step(world) : program.call_all(world)).empty());
}

void run_honestly(SparseProgram& program, World& world, int calls) {
  for (int i = 0; i < calls; ++i) {
    program.draw(static_cast<std::uint64_t>(i));
    call_honestly(program, world);
  }
  program.draw(static_cast<std::uint64_t>(calls));
}

// Of one rank and tensor, what a call that fails must leave: gradients, or what ranks know of each
// other's parameters.
std::vector<float> left_by_failure(SparseProgram& program, int rank, std::size_t t, bool failed) {
  const Compressor& compressor = program.compressor(rank, t);
  if (!compressor.spec().scheme->averages_parameters) {
    return failed ? program.residual(rank, t) : program.owed(rank, t);
  }
  std::vector<float> known = compressor.gossip.own;
  const std::vector<float>& theirs = compressor.gossip.neighbours;
  known.insert(known.end(), theirs.begin(), theirs.end());
  return known;
}

// The call ends on every rank, and holds nothing.
template <class Ranks>
std::vector<Error> call_with_liar(Ranks& program, World& world, std::vector<Message>& messages) {
  std::vector<Error> errors = run_ranks(world, [&](Call& call, int rank) {
    return rank == liar ? lie(call, messages) : program.start(call, rank);
  });
  for (int r = 0; r < ranks; ++r) expect(world.ended(r));
  return errors;
}

void hear_lies(const Scheme& scheme, std::vector<Message> messages) {
  const auto program = program_of(case_of(scheme));
  const auto made = test::world_with_hosts(case_of(scheme));
  World& world = *made;
  run_honestly(*program, world, scheme.honest_calls);
  const std::size_t tensors = scheme.counts.size();
  std::vector<std::vector<float>> all;
  for (int r = 0; r < ranks; ++r) {
    for (std::size_t t = 0; t < tensors; ++t) {
      all.push_back(left_by_failure(*program, r, t, false));
    }
  }
  const std::vector<Error> errors = call_with_liar(*program, world, messages);
  for (int r = 0; r < ranks; ++r) {
    if (r == liar || !errors[static_cast<std::size_t>(r)]) continue;
    for (std::size_t t = 0; t < tensors; ++t) {
      const auto& expected = all[static_cast<std::size_t>(r) * tensors + t];
      const std::vector<float> kept = left_by_failure(*program, r, t, true);
      expect(kept.size() == expected.size());
      for (std::size_t i = 0; i < kept.size(); ++i) {
        expect(std::fabs(kept[i] - expected[i]) <= 1e-5f * (std::fabs(expected[i]) + 1e-3f));
      }
    }
  }
  expect(world.leaks().empty());
}

// Keeps what honest ranks receive from the one that would lie.
class Ear final : public OperationObserver {
 public:
  explicit Ear(World& world) : world_(world) {
    world.sim().scheduler().observer = this;
    for (int r = 0; r < ranks; ++r) world.mailbox(r).observer = this;
  }
  void begins(const Send&) override {}
  void begins(const Receive& receive) override { open_.insert(&receive); }
  void ends(const Operation& operation) override {
    if (open_.erase(&operation) == 0 || operation.peer != liar || operation.error) return;
    const auto& receive = static_cast<const Receive&>(operation);
    const std::byte* data = receive.borrow ? receive.lease.data() : receive.into;
    Message message;
    while (receive.comm != &world_.comm(message.to)) ++message.to;
    message.lane = receive.tag.lane;
    message.step = receive.tag.step;
    message.bytes.assign(reinterpret_cast<const char*>(data), receive.length);
    if (message.to != liar && receive.length < (1u << 16)) pack(heard, message);
  }
  std::string heard;

 private:
  World& world_;
  std::set<const Operation*> open_;
};

std::string truth_of(const Scheme& scheme) {
  const auto program = program_of(case_of(scheme));
  const auto made = test::world_with_hosts(case_of(scheme));
  World& world = *made;
  run_honestly(*program, world, scheme.honest_calls);
  Ear ear(world);
  call_honestly(*program, world);
  return ear.heard;
}

// --- coded moves --------------------------------------------------------------------------------

// Each move, and each coding.
const std::vector<test::CodedCase>& coded_cases() {
  static const std::vector<test::CodedCase> built = [] {
    std::vector<test::CodedCase> all;
    for (const char* spec : {"int8", "fp16", "int8:map=dynamic", "fp8", "fp8:format=e5m2", "bf16",
                             "qsgd:bits=2", "natural", "terngrad"}) {
      for (const Collective collective : {Collective::allgather, Collective::reduce_scatter,
                                          Collective::broadcast, Collective::alltoall}) {
        test::CodedCase c;
        c.collective = collective;
        c.spec = spec;
        c.root = liar;
        c.type = all.size() % 3 == 0 ? DType::bf16 : DType::f32;
        c.in_place = all.size() % 2 == 0 && collective != Collective::alltoall;
        all.push_back(c);
      }
    }
    return all;
  }();
  return built;
}

SimConfig world_of(const test::CodedCase& c) {
  SimConfig config;
  config.ranks = c.ranks;
  return config;
}

void hear_coded_lies(const test::CodedCase& c, std::vector<Message> messages) {
  World world(world_of(c));
  test::CodedProgram program(c);
  call_with_liar(program, world, messages);
  expect(world.leaks().empty());
}

std::string truth_of(const test::CodedCase& c) {
  World world(world_of(c));
  test::CodedProgram program(c);
  Ear ear(world);
  for (const Error& error :
       run_ranks(world, [&](Call&call, int r) { return program.start(call, r); })) {
    expect(!error);
  }
  return ear.heard;
}

// --- coded indices ------------------------------------------------------------------------------

// Both decoders, with no byte and no element more than they were told of.
void decode(Bites& bites) {
  std::uint32_t numbers[3];  // first, span, capacity
  for (std::uint32_t& number : numbers) {
    number = bites.byte();
    for (int i = 0; i < 2; ++i) number = number << 8 | bites.byte();
  }
  const std::size_t span = numbers[1] % 300000;
  const std::size_t capacity = numbers[2] % 70000;
  const std::string_view text = bites.bytes(~std::size_t{0});
  const std::vector<char> coded(text.begin(), text.end());
  std::vector<std::uint32_t> found[2];
  Decoded decoded[2];
  for (const int plain : {0, 1}) {
    found[plain].resize(capacity);
    found[plain].shrink_to_fit();
    const DecodeIndicesKernel::Args args{reinterpret_cast<const std::byte*>(coded.data()),
                                         coded.size(),
                                         numbers[0],
                                         span,
                                         found[plain].data(),
                                         capacity,
                                         &decoded[plain]};
    plain ? kernels::scalar::decode_indices(args) : kernels::decode_indices(args);
  }
  expect(decoded[0].valid == decoded[1].valid);
  if (!decoded[0].valid) return;
  expect(decoded[0].count == decoded[1].count && decoded[0].bytes == decoded[1].bytes);
  expect(std::equal(found[0].begin(), found[0].begin() + std::ptrdiff_t(decoded[0].count),
                    found[1].begin()));
  for (std::size_t i = 0; i < decoded[0].count; ++i) {
    expect(found[0][i] >= numbers[0] && found[0][i] - numbers[0] < span);
    expect(i == 0 || found[0][i] > found[0][i - 1]);
  }
}

std::string coded_seed(std::size_t span, std::size_t stride) {
  std::vector<std::uint32_t> indices;
  for (std::size_t i = stride / 2; i < span; i += stride + i % 3) {
    indices.push_back(static_cast<std::uint32_t>(1000 + i));
  }
  std::string out(EncodeIndicesKernel::coded_bound(indices.size(), span), '\0');
  std::size_t written = 0;
  kernels::encode_indices({indices.data(), indices.size(), 1000, span,
                           reinterpret_cast<std::byte*>(out.data()), &written});
  out.resize(written);
  std::string seed;
  for (const std::size_t number : {std::size_t{1000}, span, indices.size()}) {
    for (const int shift : {16, 8, 0}) seed += static_cast<char>(number >> shift & 0xff);
  }
  seed.append(out);
  return seed;
}

// --- saved states -------------------------------------------------------------------------------

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// A state that was accepted carries a call.
void load_and_call(const Scheme& scheme, std::string bytes) {
  test::append_checksum(bytes);  // so that what is before it is read
  SparseCase c = case_of(scheme);
  c.counts.resize(1);
  HostCompute host;
  const auto made_program = program_of(c);
  SparseProgram& program = *made_program;
  for (int r = 0; r < ranks; ++r) {
    const Error error = load(program.compressor(r), host, bytes_of(bytes));
    if (error) {
      expect(error.code() == Code::invalid_argument && program.compressor(r).is_new());
      return;
    }
    if (program.compressor(r).check(c.counts[0], DType::f32)) return;  // of another shape
  }
  const auto made = test::world_with_hosts(case_of(scheme));
  World& world = *made;
  for (int call = 0; call < 2; ++call) {
    program.draw(static_cast<std::uint64_t>(call));
    for (const Error& error :
         run_ranks(world, [&](Call&one, int r) { return program.start(one, r); })) {
      expect(!error);
    }
  }
}

std::string saved_seed(const Scheme& scheme) {
  SparseCase c = case_of(scheme);
  c.counts.resize(1);
  const auto made_program = program_of(c);
  SparseProgram& program = *made_program;
  const auto made = test::world_with_hosts(case_of(scheme));
  World& world = *made;
  run_honestly(program, world, 3);
  std::string bytes(saved_bytes(program.compressor(0)), '\0');
  save(program.compressor(0), reinterpret_cast<std::byte*>(bytes.data()));
  bytes.resize(bytes.size() - sizeof(std::uint64_t));
  return bytes;
}

enum Kind : std::uint8_t { messages, indices, state, moves, kinds };

std::string input_of(Kind kind, std::size_t which, const std::string& rest) {
  std::string input(2, static_cast<char>(kind));
  input[1] = static_cast<char>(which);
  input.append(rest);
  return input;
}

}  // namespace

// What is read, of which scheme or move, and the bytes.
void run(std::span<const std::uint8_t> input) {
  Bites bites(input);
  const auto kind = static_cast<Kind>(bites.byte() % kinds);
  const std::size_t which = bites.byte();
  const Scheme& scheme = schemes()[which % schemes().size()];
  if (kind == indices) return decode(bites);
  if (kind == messages) return hear_lies(scheme, unpack(bites));
  if (kind == moves) {
    return hear_coded_lies(coded_cases()[which % coded_cases().size()], unpack(bites));
  }
  load_and_call(scheme, std::string(bites.bytes(input.size())));
}

std::vector<std::string> seeds() {
  std::vector<std::string> seeds;
  for (std::size_t i = 0; i < schemes().size(); ++i) {
    const Scheme& scheme = schemes()[i];
    seeds.push_back(input_of(messages, i, truth_of(scheme)));
    if (scheme.counts[0] < 10000) seeds.push_back(input_of(state, i, saved_seed(scheme)));
  }
  for (std::size_t i = 0; i < coded_cases().size(); ++i) {
    seeds.push_back(input_of(moves, i, truth_of(coded_cases()[i])));
  }
  for (const std::size_t stride : {1, 2, 9, 100, 5000, 400000}) {
    for (const std::size_t span : {1, 63, 1000, 65536, 70000, 200000}) {
      seeds.push_back(input_of(indices, 0, coded_seed(span, stride)));
    }
  }
  return seeds;
}

}  // namespace pith::fuzz
