// The cost functions of allgather, reduce-scatter, broadcast and alltoall whose values are coded.
#include <fmt/format.h>

#include "answer.hpp"
#include "collectives/coded/coded_move_cost.hpp"
#include "collectives/coded/wire_coding.hpp"
#include "compress/scheme.hpp"
#include "model/cheapest.hpp"
#include "model/nominal.hpp"

namespace pith_explain {

using namespace pith;

namespace {

CollectiveArgs args_of(const Question& question, const Model& model, std::size_t elements) {
  CollectiveArgs args;
  args.collective = question.collective;
  args.count = elements;
  args.tuning = model.tuning();
  return args;
}

// Of a core: what it sends is coded, what it receives decoded.
double coding_seconds(const Question& question, std::size_t elements) {
  const Extent extent = extent_of(carrier_of(question.collective), question.ranks);
  const auto blocks = static_cast<double>(extent.send + extent.recv);
  return blocks / 2 * static_cast<double>(elements) * nominal::code_element;
}

}  // namespace

bool has_coded_form(Collective collective) {
  return collective == Collective::allgather || collective == Collective::reduce_scatter ||
         collective == Collective::broadcast || collective == Collective::alltoall;
}

std::vector<Candidate> coded_moves(const Question& question, const Model& model, Sent& sent,
                                   std::string& takes) {
  const std::size_t elements = question.bytes / size_of(DType::f32);
  const Coding coding = *coding_of(*question.compress);
  const CodedMoveShape move(args_of(question, model, elements), coding, question.ranks);
  sent.plain = move.sent_bytes(move.carrier, question.ranks, question.bytes);
  sent.coded = move.sent_bytes(move.carrier, question.ranks, move.all);
  const auto name = [&](const Algorithm& carrier) {
    return fmt::format("{} by {}", question.compress->scheme->name, carrier.name);
  };
  const Shape shape = model.shape(move.block);
  std::vector<Candidate> found;
  for (const Algorithm& carrier : algorithms()) {
    if (carrier.collective != move.carrier) continue;
    Candidate candidate;
    candidate.name = name(carrier);
    candidate.compressed = true;
    candidate.exchange_s =
        move.seconds(question.link, [&](const LinkCost& link, std::size_t bytes) {
          return mean_cost_on(link, carrier, model.shape(bytes));
        });
    candidate.work_s = coding_seconds(question, elements);
    if (!serves(carrier, shape)) candidate.closed = why_not_serving(carrier, shape.ranks);
    found.push_back(std::move(candidate));
  }
  takes = name(model.algorithm(move.carrier, move.block));
  return found;
}

}  // namespace pith_explain
