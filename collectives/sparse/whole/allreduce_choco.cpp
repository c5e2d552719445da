// CHOCO-SGD: ranks bring their parameters nearer to the mean by gossip with their neighbours in a
// graph [Koloskova, Stich, Jaggi, ICML 2019].
//
//   rank i     q = the k largest of x - own  > to every neighbour > own += q
//   from j     q of j                                             > neighbours += weight of j * q
//   result     x + gamma (neighbours - sum of all neighbours' weights * own)
//
// The weights: compress/gossip/graph.hpp. `own` is what a rank's neighbours know of its parameters,
// `neighbours` the weighted sum of what it knows of theirs. What ranks know of each other comes
// near the parameters, and the parameters their mean, which no call changes.
//
// Cost: alpha + degree k beta b, b bytes a pair, about 5; twice as many messages, since values
// follow their indices in a second one. It does not grow with the number of ranks, as an average
// does; but a call is only a step towards it. See choco_cost.hpp.
#include <array>

#include "collectives/lists/list_message.hpp"
#include "collectives/sparse/whole/whole_lists.hpp"
#include "collectives/strands.hpp"
#include "compress/gossip/choco_scheme.hpp"

namespace pith {

namespace {

GossipGraph graph_of(Call& call, const SparseCall& args) {
  const auto& stated = args.tensors[0].compressor->gossip.graph;
  if (states_graph(args.spec())) return {*stated, call.callers_rank(), call.size()};
  return {graph_of(args.spec()), call.callers_rank(), call.size()};
}

// After the election.
struct Gossip {
  Gossip(Call& call, const SparseCall& sparse)
      : args(sparse),
        graph(graph_of(call, args)),
        vectors(call, args, static_cast<std::size_t>(graph.degree())),
        parts{{0, line_up(vectors.all())}, ListVectors::message_elements} {}

  ListAddress neighbour(const Call& call, int k) const {
    return {call.place_of(graph[k]), ListVectors::lane, 0};
  }

  const SparseCall& args;
  const GossipGraph graph;
  const ListVectors vectors;
  const ListParts parts;
};

// The accumulator holds nothing from call to call: the difference to what neighbours know is that
// of the present parameters.
void begin_difference(Compressor& compressor) {
  GossipMemories& known = compressor.gossip;
  known.own.resize(compressor.count());
  known.neighbours.resize(compressor.count());
  float* const difference = compressor.accumulator();
  for (std::size_t i = 0; i < known.own.size(); ++i) difference[i] = -known.own[i];
}

Task<Error> send_to_all(Call& call, Gossip& gossip, const ListMessage& message) {
  return with_each(call, static_cast<std::size_t>(gossip.graph.degree()),
                   [&call, &gossip, &message](int k) {
                     return send_lists(call, gossip.neighbour(call, k), message);
                   });
}

Task<Error> send_own(Call& call, Gossip& gossip) {
  for (std::size_t p = 0; p < gossip.parts.count(); ++p) {
    const ListMessage message =
        write_slices(call, gossip.vectors.all(), gossip.parts[p], gossip.args.spec().values, 0);
    const auto times = static_cast<std::uint64_t>(gossip.graph.degree());
    gossip.args.traffic->sent += times * message.bytes();
    Error error = co_await send_to_all(call, gossip, message);
    if (error) co_return error;
  }
  co_return Error();
}

// The last neighbour first: of the complete graph it is the one that begins with this rank.
Task<Error> receive_theirs(Call& call, Gossip& gossip) {
  std::uint32_t flags = 0;
  for (int k = gossip.graph.degree() - 1; k >= 0; --k) {
    const ListTargets targets{gossip.vectors.all(), static_cast<std::size_t>(k),
                              gossip.args.spec().values};
    Error error = co_await receive_slices(call, gossip.neighbour(call, k), gossip.parts, targets,
                                          flags, *gossip.args.traffic);
    if (error) co_return error;
  }
  co_return Error();
}

// Adds a list's values over `divisor` to a memory.
void add(Call& call, std::vector<float>& memory, const SparseList& list, DType type,
         float divisor) {
  if (list.count == 0) return;
  Compute& host = call.host_compute();
  const Scratch shares(host, list.count * sizeof(float));
  host.run<ConvertKernel>(
      {shares.bytes().data, DType::f32, list.values, type, list.count, divisor});
  host.run<ReturnKernel>(
      {memory.data(), list.indices, shares.bytes().data, list.count, DType::f32});
}

void remember(Call& call, const Gossip& gossip) {
  const DType type = gossip.args.spec().values;
  for (std::size_t t = 0; t < gossip.args.tensors.size(); ++t) {
    Compressor& compressor = *gossip.args.tensors[t].compressor;
    const ListVector& vector = gossip.vectors.all()[t];
    add(call, compressor.gossip.own, vector.list, type, 1);
    for (int k = 0; k < gossip.graph.degree(); ++k) {
      PairList& theirs = vector.memory[static_cast<std::size_t>(k)];
      add(call, compressor.gossip.neighbours, all_of(theirs), type,
          static_cast<float>(gossip.graph.parts(k)));
    }
    compressor.stats.selected_union = vector.list.count;
  }
}

Task<Error> write_result(Call& call, const CompressedTensor& tensor, float gamma, float weight) {
  const GossipMemories& known = tensor.compressor->gossip;
  Compute& host = call.host_compute();
  const Scratch memory(host, std::min(tensor.count, host_elements_at_once) * sizeof(float));
  auto* const values = reinterpret_cast<float*>(memory.bytes().data);
  const std::size_t element = size_of(tensor.type);
  for (Range left{0, tensor.count}; left.size > 0;) {
    const Range now = take_front(left, host_elements_at_once);
    host.run<ConvertKernel>({memory.bytes().data, DType::f32, tensor.send + now.begin * element,
                             tensor.type, now.size, 1});
    for (std::size_t i = 0; i < now.size; ++i) {
      const std::size_t at = now.begin + i;
      values[i] += gamma * (known.neighbours[at] - weight * known.own[at]);
    }
    host.run<ConvertKernel>({tensor.recv + now.begin * element, tensor.type, memory.bytes().data,
                             DType::f32, now.size, 1});
    co_await call.turn();
  }
  co_return Error();
}

}  // namespace

Task<Error> allreduce_choco(Call& call, SparseCall args) {
  for (const CompressedTensor& tensor : args.tensors) begin_difference(*tensor.compressor);
  Error error = co_await elect_lists(call, args);
  if (error) co_return error;
  Gossip gossip(call, args);
  std::array<Task<Error>, 2> strands{strand(call, send_own(call, gossip)),
                                     strand(call, receive_theirs(call, gossip))};
  error = co_await when_all(strands);
  if (error) co_return error;
  remember(call, gossip);
  const auto gamma = static_cast<float>(gamma_of(args.spec()));
  for (const CompressedTensor& tensor : args.tensors) {
    error = co_await write_result(call, tensor, gamma, gossip.graph.weight());
    if (error) co_return error;
  }
  co_return error;
}

}  // namespace pith
