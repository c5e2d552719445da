// The result of a call by host: every owner sends the pairs of its slice to the other ranks of its
// host. A message before them has their number, and whether there is anything to deliver. It also
// tells the receiver that the owner does not read its memory any more.
//
// The pairs go by messages, although host_sum.cpp uses views for dense gradients. They are a
// hundredth of the result, which every rank writes into its own memory in any case. A view would
// save the copy of 8 bytes a pair, and cost two notices an owner: that the list is complete, and
// that it has been read.
#include <array>
#include <cstring>

#include "collectives/lists/result_writer.hpp"
#include "collectives/sparse/by_host.hpp"
#include "collectives/strands.hpp"
#include "compress/host_slice.hpp"

namespace pith::by_host {

namespace {

// Lanes of the call inside a host, where host_sum.cpp has the first ones.
constexpr std::uint16_t head_lane = 8;
constexpr std::uint16_t pairs_lane = 9;
constexpr std::size_t message_bytes = std::size_t{16} << 20;

// The number of pairs that an owner has of each tensor, and whether there is nothing to deliver.
class Head {
 public:
  Head(Compute& host, std::size_t tensors)
      : memory_(host, (1 + tensors) * sizeof(std::uint32_t)), tensors_(tensors) {}
  std::uint32_t& nan() const { return words()[0]; }
  std::uint32_t& count(std::size_t t) const { return words()[1 + t]; }
  Bytes bytes() const { return memory_.bytes().part(0, (1 + tensors_) * sizeof(std::uint32_t)); }
  std::size_t pairs() const {
    std::size_t all = 0;
    for (std::size_t t = 0; t < tensors_; ++t) all += count(t);
    return all;
  }

 private:
  std::uint32_t* words() const { return reinterpret_cast<std::uint32_t*>(memory_.bytes().data); }
  Scratch memory_;
  std::size_t tensors_;
};

constexpr std::size_t pair_bytes = sizeof(std::uint32_t) + sizeof(float);

// Copies an owner's pairs to received(), by index of the whole vector.
void collect_own(ByHost& by) {
  const auto own = static_cast<std::size_t>(*by.own);
  for (const CompressedTensor& tensor : by.args.tensors) {
    PairList& into = by.pairs(tensor, own);
    const Range range = by.part(tensor, own);
    if (range.size == 0 || by.nan) continue;
    PairList& sums = tensor.compressor->slice()->sums();
    into.reserve(sums.count());
    for (std::size_t i = 0; i < sums.count(); ++i) {
      into.indices()[i] = *sums.indices(i) + static_cast<std::uint32_t>(range.begin);
    }
    if (sums.count() > 0) {
      std::memcpy(into.values(), sums.values(), sums.count() * sizeof(float));
    }
    into.end_run(sums.count());
  }
}

struct Told {
  Head head;
  Scratch pairs;  // indices and values of one tensor after the other
};

Told write_told(ByHost& by) {
  const auto own = static_cast<std::size_t>(*by.own);
  const auto tensors = by.args.tensors;
  Told told{Head(by.host(), tensors.size()), Scratch()};
  told.head.nan() = by.nan;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    told.head.count(t) = static_cast<std::uint32_t>(by.pairs(tensors[t], own).count());
  }
  told.pairs = Scratch(by.host(), std::max<std::size_t>(told.head.pairs(), 1) * pair_bytes);
  std::byte* at = told.pairs.bytes().data;
  for (const CompressedTensor& tensor : tensors) {
    PairList& list = by.pairs(tensor, own);
    const std::size_t bytes = list.count() * sizeof(float);
    if (bytes == 0) continue;
    std::memcpy(at, list.indices(), bytes);
    std::memcpy(at + bytes, list.values(), bytes);
    at += 2 * bytes;
  }
  return told;
}

Task<Error> tell_host(ByHost& by) {
  if (!by.own) co_return Error();
  const Told told = write_told(by);
  Call& host = by.inside.call();
  const Bytes pairs = told.pairs.bytes().part(0, told.head.pairs() * pair_bytes);
  for (int d = 1; d < host.size(); ++d) {
    const int to = wrap(host.rank() + d, host.size());
    Error error = co_await host.send(to, head_lane, 0, told.head.bytes());
    if (error) co_return error;
    for (std::size_t k = 0; k < chunks_in(pairs.size, message_bytes); ++k) {
      const Range range = chunk_of({0, pairs.size}, message_bytes, k);
      error = co_await host.send(to, pairs_lane, static_cast<std::uint32_t>(k),
                                 pairs.part(range.begin, range.size));
      if (error) co_return error;
    }
    by.args.traffic->sent += told.head.bytes().size + pairs.size;
  }
  co_return Error();
}

// False: the lists are malformed.
bool read_told(ByHost& by, std::size_t owner, const Head& head, const std::byte* at) {
  for (std::size_t t = 0; t < by.args.tensors.size(); ++t) {
    const CompressedTensor& tensor = by.args.tensors[t];
    const Range range = by.part(tensor, owner);
    const std::size_t count = head.count(t);
    PairList& into = by.pairs(tensor, owner);
    into.reserve(count);
    const std::size_t bytes = count * sizeof(float);
    if (bytes > 0) {
      std::memcpy(into.indices(), at, bytes);
      std::memcpy(into.values(), at + bytes, bytes);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t index = *into.indices(i);
      const bool rises = i == 0 || *into.indices(i - 1) < index;
      if (!rises || index < range.begin || index >= range.begin + range.size) return false;
    }
    into.end_run(count);
    at += 2 * bytes;
  }
  return true;
}

constexpr std::string_view unreadable = "sums that cannot be read";

Task<Error> hear_owner(ByHost& by, int owner) {
  Call& host = by.inside.call();
  const Head head(by.host(), by.args.tensors.size());
  Error error = co_await host.recv(owner, head_lane, 0, head.bytes());
  if (error) co_return error;
  const std::size_t bytes = head.pairs() * pair_bytes;
  if (head.pairs() > by.ranges()[static_cast<std::size_t>(owner)].size) {
    co_return malformed(host, owner, unreadable);
  }
  by.nan |= head.nan() != 0;
  const Scratch pairs(by.host(), std::max<std::size_t>(bytes, 1));
  for (std::size_t k = 0; k < chunks_in(bytes, message_bytes); ++k) {
    const Range range = chunk_of({0, bytes}, message_bytes, k);
    error = co_await host.recv(owner, pairs_lane, static_cast<std::uint32_t>(k),
                               pairs.bytes().part(range.begin, range.size));
    if (error) co_return error;
  }
  by.args.traffic->received += head.bytes().size + bytes;
  if (!read_told(by, static_cast<std::size_t>(owner), head, pairs.bytes().data)) {
    co_return malformed(host, owner, unreadable);
  }
  co_return error;
}

Task<Error> hear_host(ByHost& by) {
  for (int owner = 0; owner < by.hosts.slices(); ++owner) {
    if (owner == by.inside.call().rank()) continue;
    Error error = co_await hear_owner(by, owner);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace

Task<Error> share_result(ByHost& by) {
  for (const CompressedTensor& tensor : by.args.tensors) {
    for (PairList& list : tensor.compressor->received(by.slices())) list.begin(DType::f32);
  }
  if (by.own) collect_own(by);
  std::array<Task<Error>, 2> strands{tell_host(by), hear_host(by)};
  co_return co_await when_all(strands);
}

void deliver(ByHost& by) {
  if (by.nan) return deliver_nan(by.call, by.args);
  for (const CompressedTensor& tensor : by.args.tensors) {
    ResultWriter writer(by.call, tensor);
    for (std::size_t s = 0; s < by.slices() && tensor.count > 0; ++s) {
      PairList& list = by.pairs(tensor, s);
      writer.put(by.part(tensor, s), {list.indices(), list.values(), list.count()}, DType::f32);
    }
    by.args.conclude(tensor, writer);
    tensor.compressor->take_all();
    if (!tensor.compressor->slice()) tensor.compressor->elected = 0;
  }
}

}  // namespace pith::by_host
