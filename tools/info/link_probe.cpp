#include "link_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>

#include "core/clock.hpp"
#include "kernels/reduce.hpp"

namespace pith_info {

namespace {

using pith::HostLink;
using pith::LinkEstimate;

// Of a pair and way; also what a size may take at first.
double budget_s(double short_message_s) {
  constexpr double least = 0.2;
  constexpr double round_trips = 100;
  return std::max(least, round_trips * 2 * short_message_s);
}

constexpr std::size_t samples_max = 1000;
constexpr std::size_t bytes_max = std::size_t{1} << 20;
constexpr std::array<std::size_t, 6> message_sizes = {8, 512, 4096, 32768, 262144, bytes_max};
// Shorter ones are not copied, and for sums less than the clock's reading.
constexpr std::span<const std::size_t> long_sizes = std::span(message_sizes).subspan(2);

double seconds_now() { return static_cast<double>(pith::monotonic_ns()) * 1e-9; }

void must(pithResult_t result, const char* call) {
  if (result == pithSuccess) return;
  throw std::runtime_error(
      fmt::format("{}: {}: {}", call, pithGetErrorString(result), pithGetLastError(nullptr)));
}

struct Sample {
  std::size_t bytes = 0;
  double seconds = 0;
};
using Samples = std::vector<Sample>;

class Buffer {
 public:
  explicit Buffer(bool registered) : private_(registered ? 0 : bytes_max) {
    data_ = private_.data();
    if (registered) must(pithMemAlloc(&data_, bytes_max), "pithMemAlloc");
    std::memset(data_, 1, bytes_max);  // all pages are there
  }
  ~Buffer() {
    if (private_.empty()) pithMemFree(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }

 private:
  std::vector<std::byte> private_;
  void* data_ = nullptr;
};

// How a ball gets to the other rank.
struct Way {
  bool broadcast = false;  // else by pithSend
  bool registered = false;
  std::span<const std::size_t> sizes = message_sizes;
};

constexpr Way way_of(HostLink link) {
  if (link == HostLink::views) return {true, true, message_sizes};
  if (link == HostLink::copies) return {true, false, long_sizes};
  return {};
}

// Ranks 0 and 1 of a communicator of two; rank 0 says what comes next, as only it takes times.
class PingPong {
 public:
  PingPong(pithComm_t pair, int rank, const Way& way)
      : pair_(pair), rank_(rank), way_(way), buffer_(way.registered) {}

  Samples run(LinkEstimate guess) {
    if (rank_ == 0) {
      lead(guess);
    } else {
      while (play({})) {
      }
    }
    return std::move(samples_);
  }

 private:
  struct Batch {
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;  // 0: the end
  };

  void pass(void* data, std::size_t bytes, int from) {
    if (rank_ == from) {
      must(pithSend(data, bytes, pithUint8, 1 - from, pair_, nullptr), "pithSend");
    } else {
      must(pithRecv(data, bytes, pithUint8, from, pair_, nullptr), "pithRecv");
    }
  }

  void ball(std::size_t bytes, int from) {
    if (!way_.broadcast) return pass(buffer_.data(), bytes, from);
    must(pithBcast(buffer_.data(), bytes, pithUint8, from, pair_, nullptr), "pithBcast");
  }

  // The first ping-pong is not counted: the other rank may still read what comes.
  bool play(Batch batch) {
    pass(&batch, sizeof(batch), 0);
    for (std::uint64_t i = 0; i < batch.count; ++i) {
      const double begun = seconds_now();
      ball(batch.bytes, 0);
      ball(batch.bytes, 1);
      if (i > 0) samples_.push_back({batch.bytes, (seconds_now() - begun) / 2});
    }
    return batch.count > 0;
  }

  // First one of each size that is not expected to take too long, by what shorter ones took.
  void lead(LinkEstimate& guess) {
    std::vector<std::size_t> sizes;
    double budget = budget_s(0);
    for (const std::size_t bytes : way_.sizes) {
      if (4 * guess.seconds(bytes).value > budget && !sizes.empty()) continue;
      play({bytes, 2});
      sizes.push_back(bytes);
      guess.add(bytes, samples_.back().seconds);
      if (sizes.size() == 1) budget = budget_s(samples_.back().seconds);
    }
    constexpr std::uint64_t batch = 5;
    const double end = seconds_now() + budget;
    for (std::size_t i = 0; samples_.size() < samples_max && seconds_now() < end; ++i) {
      const std::size_t bytes = sizes[i % sizes.size()];
      const double expected = 2 * batch * guess.seconds(bytes).value;
      play({bytes, seconds_now() + expected < end ? batch : 2});
    }
    play({});
  }

  pithComm_t pair_;
  int rank_;
  Way way_;
  Buffer buffer_;
  Samples samples_;
};

// In another order than they were taken in: a group of one size would look like a step of the link.
void learn(Samples samples, LinkEstimate& estimate) {
  std::shuffle(samples.begin(), samples.end(), std::mt19937(1));
  for (const Sample& sample : samples) estimate.add(sample.bytes, sample.seconds);
}

// Those of the root, on all ranks.
Samples shared(Samples samples, int root, pithComm_t comm) {
  std::uint64_t count = samples.size();
  must(pithBcast(&count, sizeof(count), pithUint8, root, comm, nullptr), "pithBcast");
  samples.resize(count);
  must(pithBcast(samples.data(), count * sizeof(Sample), pithUint8, root, comm, nullptr),
       "pithBcast");
  return samples;
}

// The ranks that are not of the pair wait in the broadcast of the result.
Samples play(const RankPair& ranks, const Way& way, const LinkEstimate& guess, pithComm_t comm) {
  int me = 0;
  must(pithCommUserRank(comm, &me), "pithCommUserRank");
  const bool plays = me == ranks.first || me == ranks.second;
  pithComm_t pair = nullptr;
  must(pithCommSplit(comm, plays ? 0 : PITH_SPLIT_NOCOLOR, me, &pair, nullptr), "pithCommSplit");
  Samples samples;
  if (plays) {
    samples = PingPong(pair, me == ranks.first ? 0 : 1, way).run(guess);
    must(pithCommDestroy(pair), "pithCommDestroy");
  }
  return shared(std::move(samples), ranks.first, comm);
}

// Sums of float32 in two vectors.
Samples time_sums() {
  const std::vector<std::byte> in(bytes_max);
  std::vector<std::byte> out(bytes_max);
  Samples samples;
  for (int round = 0; round < 50; ++round) {
    for (const std::size_t bytes : long_sizes) {
      const double begun = seconds_now();
      pith::kernels::reduce(out.data(), out.data(), in.data(), bytes / sizeof(float),
                            pith::DType::f32, pith::Op::sum);
      if (round > 0) samples.push_back({bytes, seconds_now() - begun});
    }
  }
  return samples;
}

std::vector<Place> all_places(pithComm_t comm) {
  int ranks = 0;
  int me = 0;
  must(pithCommCount(comm, &ranks), "pithCommCount");
  must(pithCommUserRank(comm, &me), "pithCommUserRank");
  const pith::Expected<Place> mine = place_of(me);
  if (!mine) throw std::runtime_error(mine.error().message());
  std::vector<Place> all(static_cast<std::size_t>(ranks));
  must(pithAllGather(&*mine, all.data(), sizeof(Place), pithUint8, comm, nullptr), "pithAllGather");
  return all;
}

std::string where(const RankPair& pair, std::span<const Place> places) {
  const auto name = [&](int rank) { return places[static_cast<std::size_t>(rank)].host.data(); };
  return fmt::format("ranks {} ({}) and {} ({})", pair.first, name(pair.first), pair.second,
                     name(pair.second));
}

}  // namespace

void probe_links(pithComm_t comm, ProbedLinks& found) {
  const std::vector<Place> places = all_places(comm);
  const LinkPairs pairs = link_pairs(places, most_paths);
  std::vector<std::uint64_t> names;
  for (const Place& place : places) names.push_back(place.name);
  found.table.set_places(pith::places_of(std::move(names)));
  const auto add = [&](std::string name, std::string at, const Samples& samples,
                       LinkEstimate& estimate) {
    learn(samples, estimate);
    found.links.push_back({std::move(name), std::move(at), &estimate});
  };
  for (const RankPair& pair : pairs.host) {
    for (const auto& [link, name] : {std::pair{HostLink::views, "views"},
                                     {HostLink::copies, "copies"},
                                     {HostLink::messages, "messages"}}) {
      LinkEstimate& estimate = found.table.host(link);
      add(name, where(pair, places), play(pair, way_of(link), estimate, comm), estimate);
    }
  }
  for (std::size_t i = 0; i < pairs.paths.size(); ++i) {
    LinkEstimate& estimate = found.table.path(i);
    add(fmt::format("path/{}", i), where(pairs.paths[i], places),
        play(pairs.paths[i], {}, estimate, comm), estimate);
  }
  add("reduce/host", fmt::format("rank 0 ({})", places[0].host.data()),
      shared(time_sums(), 0, comm),
      found.table.work(pith::WorkKind::reduce, pith::MemoryKind::host));
}

}  // namespace pith_info
