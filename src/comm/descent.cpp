#include "comm/descent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/members.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

// Rounds of agreement of the parent, apart from those in which it was made itself.
constexpr std::uint32_t split_base = 0x10000000;
constexpr std::uint32_t shrink_base = 0x40000000;
constexpr std::uint64_t split_mark = 0x73706c6974;
constexpr std::uint64_t shrink_mark = 0x736872696e6b;

constexpr const char* built_mark = "built";
// Of the excluded ranks, in the text of a call.
constexpr std::size_t most_named = 8;

// Null: dead, or not there.
const std::string* blob_of(const GatherResult& result, int member) {
  const auto found = result.blobs.find(member);
  return found == result.blobs.end() || contains(result.dead, member) ? nullptr : &found->second;
}

}  // namespace

std::vector<int> at_their_places(std::vector<int> members, const std::vector<int>& some) {
  for (int& member : members) {
    if (!contains(some, member)) member = -1;
  }
  return members;
}

// --- split ------------------------------------------------------------------------------------

Split::Split(CommKey parent, const std::vector<int>& members, int own, DescentRounds& rounds,
             int color, int key)
    : parent_(parent),
      members_(members),
      own_(own),
      round_(split_base + rounds.splits++),
      color_(color),
      order_(key) {}

Question Split::question() const {
  return {{parent_, round_},
          ControlPlane::Need::all,
          members_,
          Packer().value(color_).value(order_).take()};
}

CommKey Split::key() const {
  return mix(mix(mix(parent_, split_mark), round_), static_cast<std::uint64_t>(color_));
}

void Split::hear(const GatherResult& result) {
  step_ = DescentStep::end;
  error_ = result.error;
  if (error_ || color_ == no_color) return;
  std::vector<std::pair<int, int>> ordered;  // key, rank of the parent
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const auto found = result.blobs.find(members_[r]);
    if (found == result.blobs.end()) continue;
    Unpacker blob(found->second);
    if (blob.value<int>() == color_) ordered.emplace_back(blob.value<int>(), static_cast<int>(r));
  }
  std::sort(ordered.begin(), ordered.end());
  for (const auto& [key, r] : ordered) chosen_.push_back(members_[static_cast<std::size_t>(r)]);
  if (contains(chosen_, own_)) {
    step_ = DescentStep::make;
  } else {
    error_ = Error(Code::internal, "a split without its caller");
  }
}

// --- shrink -----------------------------------------------------------------------------------

Shrink::Shrink(CommKey parent, const std::vector<int>& members, std::span<const int> excluded,
               DescentRounds& rounds, std::uint32_t next_call)
    : parent_(parent), members_(members), rounds_(rounds) {
  for (std::size_t r = 0; r < members.size(); ++r) {
    const bool out = std::ranges::find(excluded, static_cast<int>(r)) != excluded.end();
    if (!out) candidates_.push_back(members[r]);
  }
  if (next_call != 0) note_call(next_call);
}

// As others see it who are in another call.
void Shrink::note_call(std::uint32_t next_call) {
  call_.number = next_call;
  call_.digest = shrink_mark;
  for (const int member : candidates_) {
    call_.digest = mix(call_.digest, static_cast<std::uint64_t>(member));
  }
  call_.text = "shrink";
  for (std::size_t r = 0; r < members_.size(); ++r) {
    if (contains(candidates_, members_[r])) continue;
    call_.without.push_back(members_[r]);
    const std::size_t so_far = call_.without.size();
    if (so_far <= most_named) {
      call_.text += fmt::format("{} rank {}", so_far == 1 ? " without" : ",", r);
    }
  }
  if (call_.without.size() > most_named) {
    call_.text += fmt::format(" and {} more", call_.without.size() - most_named);
  }
}

Question Shrink::question(std::uint64_t completed) {
  Question question;
  question.key = {parent_, shrink_base + rounds_.shrinks++};
  question.need = ControlPlane::Need::live;
  if (stage_ == Stage::survivors) {
    key_ = mix(mix(parent_, shrink_mark), rounds_.shrinks);  // of this attempt
    own_completed_ = completed;
    question.participants = at_their_places(members_, candidates_);
    question.blob = Packer().value(completed).take();
    question.call = call_;
    question.call.round = question.key.round;
  } else {
    question.participants = at_their_places(members_, survivors_);
    if (!not_made_) question.blob = built_mark;
  }
  return question;
}

void Shrink::hear(const GatherResult& result) {
  if (result.error) {
    // Who came before the parent was revoked disagreed with others; all have been told so, and
    // nobody is in that round any more.
    const bool over = result.error.code() == Code::invalid_usage && stage_ == Stage::survivors;
    return over && call_.number == 0 ? void() : end(result.error);
  }
  return stage_ == Stage::survivors ? hear_survivors(result) : hear_outcome(result);
}

// Every blob is the last completed call of its rank.
void Shrink::hear_survivors(const GatherResult& result) {
  survivors_.clear();
  completed_ = own_completed_;
  for (const int member : candidates_) {
    const std::string* blob = blob_of(result, member);
    if (!blob) continue;
    survivors_.push_back(member);
    completed_ = std::min(completed_, Unpacker(*blob).value<std::uint64_t>());
  }
  step_ = DescentStep::make;
}

void Shrink::made(const Error& error) {
  not_made_ = error;
  stage_ = Stage::outcome;
  step_ = DescentStep::ask;
}

// The same answer everywhere, whatever each of them knows by now.
void Shrink::hear_outcome(const GatherResult& result) {
  bool all_made = true;
  bool all_live = true;
  for (const int member : survivors_) {
    const std::string* blob = blob_of(result, member);
    all_live = all_live && blob;
    all_made = all_made && blob && *blob == built_mark;
  }
  if (all_live && all_made) {
    built_ = true;
    return end(Error());
  }
  if (all_live) {
    const Error elsewhere(Code::remote, "another rank could not make the new communicator");
    return end(not_made_ ? not_made_ : elsewhere);
  }
  if (++attempts_ >= members_.size()) {
    return end(
        Error(Code::remote, "no communicator of survivors could be made: ranks went on dying"));
  }
  stage_ = Stage::survivors;
  step_ = DescentStep::ask;
}

void Shrink::end(const Error& error) {
  step_ = DescentStep::end;
  error_ = error;
}

}  // namespace pith
