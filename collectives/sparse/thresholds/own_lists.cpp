#include "collectives/sparse/thresholds/own_lists.hpp"

#include <array>

#include "collectives/lists/list_adder.hpp"
#include "collectives/lists/list_message.hpp"
#include "collectives/sparse/whole/whole_lists.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

constexpr std::uint16_t lane = 0;
constexpr std::size_t message_elements = std::size_t{1} << 28;

struct OwnLists {
  std::span<ListVector> vectors;
  ListParts parts;
  DType type = DType::f32;
  std::uint32_t flags = 0;
};

Task<Error> send_own(Call& call, const OwnLists& lists, Traffic& traffic) {
  return send_slices(call, {every_other, lane, 0}, lists.vectors, lists.parts, lists.type,
                     lists.flags, traffic);
}

Task<Error> receive_others(Call& call, const OwnLists& lists, std::uint32_t& flags,
                           Traffic& traffic) {
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    const ListTargets targets{lists.vectors, static_cast<std::size_t>(from), lists.type};
    Error error =
        co_await receive_slices(call, {from, lane, 0}, lists.parts, targets, flags, traffic);
    if (error) co_return error;
  }
  co_return Error();
}

// In rank order, with a yield after each tensor.
Task<Error> write_sums(Call& call, const SparseCall& args, const OwnLists& lists) {
  const auto ranks = static_cast<std::size_t>(call.size());
  const Scratch memory(call.host_compute(), ranks * sizeof(SparseList));
  const std::span<SparseList> all{reinterpret_cast<SparseList*>(memory.bytes().data), ranks};
  SumWriter sums(call, ranks);
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    const CompressedTensor& tensor = args.tensors[t];
    const ListVector& vector = lists.vectors[t];
    ResultWriter writer(call, tensor);
    if (tensor.count > 0) {
      for (std::size_t r = 0; r < ranks; ++r) {
        const bool is_own = r == static_cast<std::size_t>(call.rank());
        all[r] = is_own ? vector.list : all_of(vector.memory[r]);
      }
      sums.write(all, lists.type, {0, tensor.count}, writer);
    }
    args.conclude(tensor, writer);
    co_await call.turn();
  }
  co_return Error();
}

}  // namespace

Task<Error> sum_own_lists(Call& call, SparseCall args, ElectOwn elect) {
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    if (args.tensors[t].count == 0) continue;
    Error error = co_await elect(call, args, t);
    if (error) co_return error;
  }
  const ListVectors vectors(call, args, static_cast<std::size_t>(call.size()));
  OwnLists lists{.vectors = vectors.all(), .parts = {}, .type = args.spec().values};
  for (std::size_t t = 0; t < args.tensors.size(); ++t) {
    lists.vectors[t].list = all_of(args.tensors[t].compressor->taken());
  }
  lists.parts = {{0, line_up(lists.vectors)}, message_elements};
  lists.flags = found_nonfinite(args) ? ListHead::nonfinite : 0;
  std::uint32_t flags = lists.flags;
  std::array<Task<Error>, 2> strands{
      strand(call, send_own(call, lists, *args.traffic)),
      strand(call, receive_others(call, lists, flags, *args.traffic))};
  Error error = co_await when_all(strands);
  if (error) co_return error;
  if (flags != 0 && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
    co_return error;
  }
  Task<Error> writing = write_sums(call, args, lists);
  error = co_await std::move(writing);
  co_return error;
}

}  // namespace pith
