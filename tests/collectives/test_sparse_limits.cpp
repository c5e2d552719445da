// Lists and sums too long for one message.
#include <map>

#include "collectives/lists/rounds.hpp"
#include "collectives/lists/sparse_sum.hpp"
#include "collectives/lists/value_sum.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// Tensors of these sizes without any memory.
Code check_of(const char* spec, const std::vector<std::size_t>& counts) {
  std::vector<std::unique_ptr<Compressor>> compressors;
  std::vector<CompressedTensor> tensors;
  for (const std::size_t count : counts) {
    compressors.push_back(std::move(*Compressor::create(spec)));
    tensors.emplace_back();
    tensors.back().compressor = compressors.back().get();
    tensors.back().count = count;
  }
  return check_lists(tensors).code();
}

// A rank's list of pairs, some indices common to all, with values whose sums are exact.
struct OwnList {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  OwnList(int rank, std::size_t count) {
    const auto stride = static_cast<std::uint32_t>(rank + 1);
    for (std::uint32_t i = stride % 2; i < count; i += stride) {
      indices.push_back(i);
      values.push_back(static_cast<float>(i % 100 + stride));
    }
  }
  SparseList list() const {
    return {indices.data(), reinterpret_cast<const std::byte*>(values.data()), indices.size()};
  }
};

using Way = Task<Error> (*)(Call& call, SparseSum sum, Traffic& traffic);

// What a rank has of every vector, and what it gets.
struct OwnSums {
  std::vector<OwnList> own;
  std::vector<std::vector<PairList>> memory;
  std::vector<ListVector> vectors;
  std::uint32_t flags = 0;

  OwnSums(int rank, int ranks, const std::vector<std::size_t>& counts)
      : memory(counts.size()), vectors(counts.size()) {
    for (const std::size_t count : counts) own.emplace_back(rank, count);
    for (std::size_t t = 0; t < counts.size(); ++t) {
      memory[t].resize(std::max(lists_for_split(static_cast<std::size_t>(ranks)),  //
                                lists_for_doubling));
      vectors[t].count = counts[t];
      vectors[t].list = own[t].list();
      vectors[t].memory = memory[t];
    }
  }
  std::map<std::uint32_t, float> sum_of(std::size_t t) const {
    const SparseList& list = vectors[t].list;
    const auto* values = reinterpret_cast<const float*>(list.values);
    std::map<std::uint32_t, float> found;
    for (std::size_t i = 0; i < list.count; ++i) found[list.indices[i]] = values[i];
    return found;
  }
};

// Empty where all ranks have the sums of all lists; so many elements of all vectors in a message.
std::string sum_lists(Way way, int ranks, const std::vector<std::size_t>& counts,
                      std::size_t message_elements) {
  SimConfig config;
  config.ranks = ranks;
  World world(config);
  std::vector<OwnSums> all;
  all.reserve(static_cast<std::size_t>(ranks));
  std::vector<std::map<std::uint32_t, float>> expected(counts.size());
  for (int r = 0; r < ranks; ++r) {
    const OwnSums& one = all.emplace_back(r, ranks, counts);
    for (std::size_t t = 0; t < counts.size(); ++t) {
      for (const auto& [index, value] : one.sum_of(t)) expected[t][index] += value;
    }
  }
  all.back().flags = 1;
  Traffic traffic;
  for (const Error& error : run_ranks(world, [&](Call&call, int rank) {
         OwnSums& one = all[static_cast<std::size_t>(rank)];
         SparseSum sum;
         sum.vectors = one.vectors;
         sum.flags = &one.flags;
         sum.message_elements = message_elements;
         return way(call, sum, traffic);
       })) {
    if (error) return error.message();
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (std::size_t t = 0; t < counts.size(); ++t) {
      if (all[r].sum_of(t) != expected[t]) return fmt::format("rank {}: another sum", r);
    }
    if (all[r].flags != 1) return fmt::format("rank {} has not heard the flag", r);
  }
  return traffic.sent == traffic.received ? "" : "another number of bytes came than was sent";
}

}  // namespace

TEST_CASE("lists that no message holds are refused", "[sparse][limits]") {
  constexpr std::size_t pairs = std::size_t{1} << 30;
  constexpr std::size_t largest = (std::size_t{1} << 32) - 1;
  constexpr Code refused = Code::invalid_argument;
  for (const char* exchange : {"auto", "direct", "ring", "split", "recursive-doubling"}) {
    const std::string spec = fmt::format("topk:density=1,exchange={}", exchange);
    CHECK(check_of(spec.c_str(), {pairs / 2, pairs / 2}) == Code::success);
    CHECK(check_of(spec.c_str(), std::vector<std::size_t>(5, largest)) == Code::success);
  }
  CHECK(check_of("ar-topk:density=1", {pairs - 1}) == Code::success);
  CHECK(check_of("ar-topk:density=1", {pairs}) == refused);
  CHECK(check_of("ar-topk:density=1", {pairs / 2, pairs / 2}) == refused);
  CHECK(check_of("ar-topk:density=0.3", {largest}) == refused);
  CHECK(check_of("exdyna", {largest, largest, largest}) == Code::success);
  CHECK(check_of("exdyna", std::vector<std::size_t>(5, largest)) == refused);
  CHECK(check_of("none", {largest}) == Code::success);
}

TEST_CASE("no message of a streamed call is too long", "[sparse][limits]") {
  constexpr std::size_t most_bytes = (std::size_t{1} << 32) - 1;
  for (const std::size_t chunk : {std::size_t{1} << 10, std::size_t{1} << 20}) {
    for (std::size_t all = 1; all < std::size_t{1} << 40; all = 3 * all + 1) {
      for (const double density : {1.0, 0.01, 1e-6}) {
        const std::size_t parcel = parcel_elements(all, density, chunk);
        const std::size_t tail = tail_elements(all, parcel);
        INFO(all << " elements, parcels of " << parcel << ", tails of " << tail);
        CHECK(tail % parcel == 0);
        CHECK(tail * sizeof(float) <= most_bytes);
        const bool longest = tail * 2 > std::size_t{1} << 28;
        CHECK((longest || chunks_in(all, tail) <= 4));
      }
    }
  }
}

TEST_CASE("every piece of a parcel lies in one of a tail", "[sparse][limits]") {
  for (const std::size_t parcel : {1, 2, 7, 10}) {
    std::vector<CompressedTensor> tensors(5);
    const std::size_t counts[] = {10, 0, 70, 3, 200};
    for (std::size_t t = 0; t < 5; ++t) tensors[t].count = counts[t];
    SparseCall args;
    args.tensors = tensors;
    args.parcel = parcel;
    Rounds rounds(args);
    Pieces tails = rounds.tails(args);
    Piece tail;
    std::size_t done = 0;
    for (Pieces pieces(tensors, parcel); !pieces.done();) {
      const Piece piece = pieces.next();
      if (tail.range.size == 0 || piece.tensor != tail.tensor ||
          piece.range.begin == tail.range.begin + tail.range.size) {
        tail = tails.next();
      }
      CHECK(tail.tensor == piece.tensor);
      CHECK(tail.range.begin <= piece.range.begin);
      CHECK(piece.range.begin + piece.range.size <= tail.range.begin + tail.range.size);
      done += piece.range.size;
    }
    CHECK(done == 283);
    CHECK(tails.done());
    std::size_t tail_rounds = 0;
    for (std::uint32_t step = 0; !rounds.done(); ++step) {
      const Round round = rounds.next();
      CHECK(round.step == step);
      CHECK(round.tail == round.passes.done());
      CHECK(round.last == rounds.done());
      tail_rounds += round.tail ? 1 : 0;
    }
    CHECK(tail_rounds >= 3);
    CHECK(tail_rounds <= 4);
  }
}

TEST_CASE("sums of lists go in as many messages as they need", "[sparse][limits]") {
  for (const Way way : {sparse_sum_split, sparse_sum_doubling}) {
    for (int ranks = 1; ranks <= 7; ++ranks) {
      for (const std::size_t count : {1, 3, 64, 1000}) {
        for (const std::size_t elements : {1, 7, 64, 1 << 20}) {
          if (elements == 1 && count > 64) continue;
          INFO(ranks << " ranks, " << count << " elements, " << elements << " in a message");
          CHECK(sum_lists(way, ranks, {count}, elements) == "");
        }
      }
    }
  }
}

TEST_CASE("sums of many vectors' lists share messages of any size", "[sparse][limits]") {
  const std::vector<std::size_t> groups[] = {
      {1, 1, 1}, {0, 3, 0, 0, 2, 0}, {5, 100, 1, 0, 30}, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}};
  for (const Way way : {sparse_sum_split, sparse_sum_doubling}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const auto& counts : groups) {
        for (const std::size_t elements : {1, 7, 64, 1 << 20}) {
          INFO(ranks << " ranks, " << counts.size() << " vectors, " << elements << " in a message");
          CHECK(sum_lists(way, ranks, counts, elements) == "");
        }
      }
    }
  }
}

TEST_CASE("a sum of values goes in as many messages as it needs", "[sparse][limits]") {
  for (const std::size_t count : {1, 2, 7, 64, 65, 1000}) {
    for (int ranks = 2; ranks <= 5; ++ranks) {
      SimConfig config;
      config.ranks = ranks;
      World world(config);
      std::vector<std::vector<float>> values(static_cast<std::size_t>(ranks));
      for (auto& own : values) {
        for (std::size_t i = 0; i < count; ++i) {
          own.push_back(static_cast<float>(i + static_cast<std::size_t>(&own - values.data())));
        }
      }
      Traffic traffic;
      const ValuePart part{nullptr, nullptr, count};
      for (const Error& error : run_ranks(world, [&](Call&call, int rank) {
             ValueSum sum;
             sum.values =
                 reinterpret_cast<std::byte*>(values[static_cast<std::size_t>(rank)].data());
             sum.count = count;
             sum.parts = std::span(&part, 1);
             sum.most_message_bytes = 64;
             return sum_values(call, sum, traffic);
           })) {
        REQUIRE(error.code() == Code::success);
      }
      for (const auto& own : values) {
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t p = values.size();
          CHECK(own[i] == static_cast<float>(p * i + p * (p - 1) / 2));
        }
      }
    }
  }
}

}  // namespace pith::test
