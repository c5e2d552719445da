// The messages between the control planes of two ranks: their kinds and encoding.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/comm_watcher.hpp"
#include "core/packing.hpp"

namespace pith {

enum class MessageKind : std::uint8_t {
  // Facts, to all neighbours.
  hello,  // all facts, from a rank to its new parent
  facts,  // all facts, the answer
  dead,
  left,
  farewell,  // the answer to `left`
  released,
  over,
  revoked,
  proposal,  // of parameters
  // Up to the root.
  contribution,
  stall,
  answer,
  present,  // the answer to a roll
  // Down from the root.
  result,
  question,
  roll,
  missing,  // who has not contributed to an agreement yet
  // Between neighbours.
  ping,  // from a rank that waits, to its parent
  pong,  // the answer to it, and to a stall or a question
};

// Kinds that are sent repeatedly: the receiver answers at once, and a neighbour that does not
// answer gets no more of them.
constexpr bool wants_answer(MessageKind kind) {
  return kind == MessageKind::ping || kind == MessageKind::stall || kind == MessageKind::question;
}

// One agreement of a communicator.
struct GatherKey {
  CommKey comm = 0;
  std::uint32_t round = 0;
  auto operator<=>(const GatherKey&) const = default;
};

enum class GatherNeed {
  all,   // every participant; a death or a revoked communicator is an error
  live,  // those participants that live and still hold the communicator
};

// The same for all participants, where it is agreed.
struct GatherResult {
  Error error;
  std::vector<int> dead;             // ranks of the job that were dead when it was decided
  std::map<int, std::string> blobs;  // by rank of the job
  bool agreed = true;                // else the error is why this rank does not know the result
};

// What one rank contributes to an agreement.
struct Contribution {
  GatherKey key;
  GatherNeed need = GatherNeed::all;
  std::vector<int> participants;
  int rank = -1;
  std::string blob;
};

// Parameters that a communicator is to have.
struct Proposal {
  CommKey comm = 0;
  std::uint32_t version = 0;
  std::string blob;
};

// A stall as it is reported to the root.
struct StallReport {
  CommKey comm = 0;
  std::vector<int> members;
  int rank = -1;
  Stall stall;
};

Packer message(MessageKind kind);
// The message without its kind.
Unpacker body_of(std::string_view message);

void pack(Packer& packer, const CallNote& call);
CallNote unpack_call(Unpacker& in);
void pack(Packer& packer, const Error& error);
Error unpack_error(Unpacker& in);
void pack(Packer& packer, const GatherKey& key);
GatherKey unpack_key(Unpacker& in);

std::string departure_message(int rank, bool ended);
std::string death_message(int rank, std::string_view how);
std::string contribution_message(const Contribution& contribution);
Contribution unpack_contribution(Unpacker& in);
std::string result_message(const GatherKey& key, const GatherResult& result);
// Reads what follows the key; empty for a truncated message.
std::optional<GatherResult> unpack_result(Unpacker& in);
std::string proposal_message(const Proposal& proposal);
Proposal unpack_proposal(Unpacker& in);
std::string stall_message(const StallReport& report);
StallReport unpack_stall(Unpacker& in);

// The error of a rank that the others have given up.
Error unreachable_self();
// "rank 1, rank 3".
std::string list_of(const std::vector<int>& ranks);

// Why a rank that has left is gone; worded like the cause from a broken connection.
inline constexpr const char* process_ended = "its process has ended";

// A neighbour that has not answered for this long has stopped.
inline constexpr double silent_s = 0.9;

}  // namespace pith
