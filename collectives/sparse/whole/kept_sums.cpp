#include "collectives/sparse/whole/kept_sums.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "collectives/lists/segment_exchange.hpp"
#include "collectives/sparse/whole/largest_sums.hpp"
#include "compress/kept_sums/kept_sums_scheme.hpp"

namespace pith {

namespace {

constexpr std::uint16_t summary_lane = 2;  // behind those of the lists

// About how many sums of a share have at least this magnitude.
double count_above(const ShareSummary& share, std::uint32_t bits, std::size_t k) {
  if (share.count == 0) return 0;
  const auto& all = share.by_place;
  const auto lower = std::partition_point(all.begin(), all.end(),
                                          [bits](std::uint32_t one) { return one >= bits; });
  if (lower == all.begin()) return 0;
  const auto j = static_cast<std::size_t>(lower - all.begin());
  const auto place = [&](std::size_t number) {
    return static_cast<double>(
        std::min<std::uint64_t>(ShareSummary::place(number, k), share.count));
  };
  const double above = place(j - 1);
  if (lower == all.end()) return above;
  const double upper = std::bit_cast<float>(all[j - 1]);
  const double part = (upper - std::bit_cast<float>(bits)) / (upper - std::bit_cast<float>(*lower));
  return above + std::max(place(j) - above - 1, 0.0) * part;  // fewer than all reach `lower`
}

}  // namespace

std::size_t ShareSummary::place(std::size_t j, std::size_t k) {
  const double power = static_cast<double>(j) / (places - 1);
  return static_cast<std::size_t>(std::llround(std::pow(static_cast<double>(k), power)));
}

ShareSummary summary_of(std::span<std::uint32_t> magnitudes, std::size_t k) {
  ShareSummary summary;
  summary.count = magnitudes.size();
  if (magnitudes.empty()) return summary;
  auto end = magnitudes.end();
  for (std::size_t j = ShareSummary::places; j-- > 0;) {
    const std::size_t place = std::min(ShareSummary::place(j, k), magnitudes.size());
    const auto at = magnitudes.begin() + static_cast<std::ptrdiff_t>(place) - 1;
    if (at < end) std::nth_element(magnitudes.begin(), at, end, std::greater<>());
    summary.by_place[j] = *at;
    end = at + 1;
  }
  return summary;
}

std::uint32_t threshold_of(std::span<const ShareSummary> shares, std::size_t k) {
  const auto reaches_k = [&](std::uint32_t bits) {
    double count = 0;
    for (const ShareSummary& share : shares) count += count_above(share, bits, k);
    return count >= static_cast<double>(k);
  };
  // The largest magnitude that k sums reach: all elements equal to it are kept.
  std::uint32_t reached = 0;
  for (std::uint32_t bit = 1u << 30; bit != 0; bit >>= 1) {
    if (reaches_k(reached | bit)) reached |= bit;
  }
  return reached;
}

namespace {

template <class Each>  // each(tensor, vector, its sums in this rank's share)
void for_each_sums(const SplitSum& split, int rank, const Each& each) {
  const std::span<ListVector> vectors = split.args.vectors;
  for_each_slice(vectors, split.shares[rank], [&](ListVector& vector, Range) {
    each(static_cast<std::size_t>(&vector - vectors.data()), vector, split.sums(vector));
  });
}

// The magnitudes of the sums in this rank's share.
class Magnitudes {
 public:
  Magnitudes(Call& call, const SplitSum& split) {
    std::size_t count = 0;
    const auto each = [&](const auto& visit) {
      for_each_sums(split, call.rank(),
                    [&](std::size_t, ListVector&, PairList& sums) { visit(sums); });
    };
    each([&](PairList& sums) { count += sums.count(); });
    memory_ = Scratch(call.host_compute(), std::max<std::size_t>(count, 1) * sizeof(std::uint32_t));
    all_ = {reinterpret_cast<std::uint32_t*>(memory_.bytes().data), count};
    std::uint32_t* at = all_.data();
    each([&](PairList& sums) {
      const auto* const values = reinterpret_cast<const float*>(sums.values());
      at = std::transform(values, values + sums.count(), at, magnitude_bits);
    });
  }
  std::span<std::uint32_t> all() const { return all_; }

 private:
  Scratch memory_;
  std::span<std::uint32_t> all_;
};

// Elements that all shares keep together.
std::size_t kept_in_all(const SparseCall& args) {
  std::size_t k = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) k += elected_of(args.spec().density, tensor.count);
  }
  return k;
}

// Equal parts of k; where there are fewer than shares with elements, they go round.
std::size_t kept_in_share(const Call& call, const SparseCall& args, const SplitSum& split) {
  int shares = 0;
  while (shares < call.size() && split.shares[shares].size > 0) ++shares;
  if (call.rank() >= shares) return 0;
  const std::uint64_t turn = args.tensors[0].compressor->step % static_cast<std::uint64_t>(shares);
  return block(kept_in_all(args), shares, wrap(call.rank() + static_cast<int>(turn), shares)).size;
}

// Every rank tells its summary to all others.
Task<Error> share_summaries(Call& call, std::span<ShareSummary> all, Traffic& traffic) {
  const auto segment = [](ShareSummary& one) {
    return Bytes{reinterpret_cast<std::byte*>(&one), sizeof one, MemoryKind::host};
  };
  const Bytes own = segment(all[static_cast<std::size_t>(call.rank())]);
  const std::uint64_t bytes = (all.size() - 1) * own.size;
  traffic.sent += bytes;
  traffic.received += bytes;
  return with_every_other(call, [&call, all, own, segment](int distance) {
    const auto from = static_cast<std::size_t>(wrap(call.rank() - distance, call.size()));
    return trade_segments(call, {.lane = summary_lane}, distance, own, segment(all[from]), Fence());
  });
}

Task<Error> agree_on_threshold(Call& call, const SparseCall& args,
                               std::span<std::uint32_t> magnitudes, Cut& cut) {
  const auto ranks = static_cast<std::size_t>(call.size());
  const std::size_t k = kept_in_all(args);
  const Scratch memory(call.host_compute(), ranks * sizeof(ShareSummary));
  const std::span<ShareSummary> all{reinterpret_cast<ShareSummary*>(memory.bytes().data), ranks};
  all[static_cast<std::size_t>(call.rank())] = summary_of(magnitudes, k);
  Error error = co_await share_summaries(call, all, *args.traffic);
  if (!error) cut.magnitude = threshold_of(all, k);
  co_return error;
}

// What the 16-bit sums of this rank's share lose of a tensor: a list behind those of the sum.
PairList& losses_of(const CompressedTensor& tensor, const SplitSum& split) {
  const std::size_t lists = lists_for_split(static_cast<std::size_t>(split.ranks));
  return tensor.compressor->received(lists + 1)[lists];
}

}  // namespace

Task<Error> keep_largest_sums(Call& call, const SparseCall& args, SplitSum& split) {
  Cut cut;
  {
    const Magnitudes magnitudes(call, split);
    if (keep_of(args.spec()) == Keep::by_threshold) {
      Error error = co_await agree_on_threshold(call, args, magnitudes.all(), cut);
      if (error) co_return error;
    } else {
      cut = cut_behind(magnitudes.all(), kept_in_share(call, args, split));
    }
  }
  for (const CompressedTensor& tensor : args.tensors) losses_of(tensor, split).begin(DType::f32);
  const DType type = args.spec().values;
  for_each_sums(split, call.rank(), [&](std::size_t t, ListVector& vector, PairList& sums) {
    reduce_to(cut, sums, nullptr);
    if (type != DType::f32) narrow(call, sums, type, losses_of(args.tensors[t], split));
    vector.list = sums.run(0);
  });
  co_await call.turn();
  co_return Error();
}

void keep_the_rest(Call& call, const CompressedTensor& tensor, const SplitSum& split,
                   const ListVector& result) {
  if (tensor.count == 0) return;
  Compressor& compressor = *tensor.compressor;
  PairList& given = compressor.taken();
  keep_pairs(call, compressor, all_of(given), given.type(), Among::others, result.list);
  compressor.keep_losses(call.host_compute(), all_of(losses_of(tensor, split)));
}

}  // namespace pith
