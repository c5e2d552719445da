#include "control/control_messages.hpp"

#include <fmt/format.h>

namespace pith {

Packer message(MessageKind kind) {
  Packer packer;
  packer.value(kind);
  return packer;
}

Unpacker body_of(std::string_view message) {
  Unpacker in(message);
  in.value<MessageKind>();
  return in;
}

void pack(Packer& packer, const CallNote& call) {
  packer.value(call.number).value(call.digest).text(call.text);
  packer.value(call.round).numbers(call.without);
  packer.value(static_cast<std::uint32_t>(call.facts.size()));
  for (const CallFact& fact : call.facts) packer.text(fact.name).text(fact.value);
}

CallNote unpack_call(Unpacker& in) {
  CallNote call;
  call.number = in.value<std::uint32_t>();
  call.digest = in.value<std::uint64_t>();
  call.text = in.text();
  call.round = in.value<std::uint32_t>();
  call.without = in.numbers();
  const auto facts = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < facts && in.whole(); ++i) {
    CallFact& fact = call.facts.emplace_back();
    fact.name = in.text();
    fact.value = in.text();
  }
  return call;
}

void pack(Packer& packer, const Error& error) {
  packer.value(static_cast<int>(error.code())).value(error.rank()).text(error.message());
}

Error unpack_error(Unpacker& in) {
  const int number = in.value<int>();
  const bool known = number >= 0 && number <= static_cast<int>(Code::in_progress);
  const Code code = known ? static_cast<Code>(number) : Code::internal;
  const int rank = in.value<int>();
  const std::string_view text = in.text();
  return code == Code::success ? Error() : Error(code, std::string(text), rank);
}

void pack(Packer& packer, const GatherKey& key) { packer.value(key.comm).value(key.round); }

GatherKey unpack_key(Unpacker& in) {
  GatherKey key;
  key.comm = in.value<CommKey>();
  key.round = in.value<std::uint32_t>();
  return key;
}

std::string departure_message(int rank, bool ended) {
  return message(MessageKind::left).value(rank).value(static_cast<std::uint8_t>(ended)).take();
}

std::string death_message(int rank, std::string_view how) {
  return message(MessageKind::dead).value(rank).text(how).take();
}

std::string contribution_message(const Contribution& contribution) {
  Packer packer = message(MessageKind::contribution);
  pack(packer, contribution.key);
  packer.value(contribution.need).numbers(contribution.participants);
  return packer.value(contribution.rank).text(contribution.blob).take();
}

Contribution unpack_contribution(Unpacker& in) {
  Contribution contribution;
  contribution.key = unpack_key(in);
  contribution.need = in.value<GatherNeed>();
  contribution.participants = in.numbers();
  contribution.rank = in.value<int>();
  contribution.blob = in.text();
  return contribution;
}

std::string result_message(const GatherKey& key, const GatherResult& result) {
  Packer packer = message(MessageKind::result);
  pack(packer, key);
  pack(packer, result.error);
  packer.value(static_cast<std::uint8_t>(result.agreed)).numbers(result.dead);
  packer.value(static_cast<std::uint32_t>(result.blobs.size()));
  for (const auto& [rank, blob] : result.blobs) packer.value(rank).text(blob);
  return packer.take();
}

std::optional<GatherResult> unpack_result(Unpacker& in) {
  GatherResult result;
  result.error = unpack_error(in);
  result.agreed = in.value<std::uint8_t>() != 0;
  result.dead = in.numbers();
  const auto count = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.whole(); ++i) {
    const int rank = in.value<int>();
    result.blobs.emplace(rank, in.text());
  }
  if (!in.whole()) return std::nullopt;
  return result;
}

std::string proposal_message(const Proposal& proposal) {
  Packer packer = message(MessageKind::proposal);
  return packer.value(proposal.comm).value(proposal.version).text(proposal.blob).take();
}

Proposal unpack_proposal(Unpacker& in) {
  Proposal proposal;
  proposal.comm = in.value<CommKey>();
  proposal.version = in.value<std::uint32_t>();
  proposal.blob = in.text();
  return proposal;
}

std::string stall_message(const StallReport& report) {
  Packer packer = message(MessageKind::stall);
  packer.value(report.comm).numbers(report.members).value(report.rank);
  pack(packer, report.stall.call);
  return packer.value(report.stall.seconds).value(report.stall.waits_for).take();
}

StallReport unpack_stall(Unpacker& in) {
  StallReport report;
  report.comm = in.value<CommKey>();
  report.members = in.numbers();
  report.rank = in.value<int>();
  report.stall.call = unpack_call(in);
  report.stall.seconds = in.value<double>();
  report.stall.waits_for = in.value<int>();
  return report;
}

Error unreachable_self() { return {Code::remote, "the other ranks could not reach this one"}; }

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += fmt::format("{}rank {}", text.empty() ? "" : ", ", rank);
  return text;
}

}  // namespace pith
