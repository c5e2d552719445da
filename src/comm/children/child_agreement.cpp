#include "comm/children/child_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "control/members.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

// The parent's rounds of agreement, distinct from those in which the parent itself was made.
constexpr std::uint32_t split_base = 0x10000000;
constexpr std::uint32_t shrink_base = 0x40000000;
constexpr std::uint64_t split_mark = 0x73706c6974;
constexpr std::uint64_t shrink_mark = 0x736872696e6b;

constexpr const char* built_mark = "built";
// The most excluded ranks that the text of a call names.
constexpr std::size_t most_named = 8;

// Null: the member is dead or gave no answer.
const std::string* blob_of(const GatherResult& result, int member) {
  const auto found = result.blobs.find(member);
  return found == result.blobs.end() || contains(result.dead, member) ? nullptr : &found->second;
}

// One rank's answer in a shrink.
struct Word {
  explicit Word(const std::string& blob) {
    Unpacker in(blob);
    completed = in.value<std::uint64_t>();
    unreached = in.numbers();
    with = in.numbers();
    whole = in.whole();
  }
  std::uint64_t completed;
  std::vector<int> unreached;
  std::vector<int> with;
  bool whole;
};

// Whether the lists are equal once the members in `some` are removed.
bool same_but(const std::vector<int>& some, std::vector<int> one, std::vector<int> other) {
  for (std::vector<int>* list : {&one, &other}) {
    std::erase_if(*list, [&](int member) { return contains(some, member); });
  }
  return one == other;
}

// A set of members that contains at least one end of every link.
std::vector<int> cover_of(std::vector<std::pair<int, int>> links, const std::vector<int>& members) {
  for (auto& [one, other] : links) {
    if (one > other) std::swap(one, other);
  }
  std::ranges::sort(links);
  links.erase(std::unique(links.begin(), links.end()), links.end());
  const auto ends_at = [](int member) {
    return [member](const auto& link) { return link.first == member || link.second == member; };
  };
  std::vector<int> cover;
  while (!links.empty()) {
    int worst = -1;
    std::ptrdiff_t most = 1;
    for (const int member : members) {
      const std::ptrdiff_t count = std::ranges::count_if(links, ends_at(member));
      if (count < most) continue;
      worst = member;
      most = count;
    }
    cover.push_back(worst);
    std::erase_if(links, ends_at(worst));
  }
  return cover;
}

}  // namespace

std::vector<int> at_their_places(std::vector<int> members, const std::vector<int>& some) {
  for (int& member : members) {
    if (!contains(some, member)) member = -1;
  }
  return members;
}

// --- split ------------------------------------------------------------------------------------

Split::Split(CommKey parent, const std::vector<int>& members, int own, ChildRounds& rounds,
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
  step_ = ChildStep::end;
  error_ = result.error;
  if (error_ || color_ == no_color) return;
  std::vector<std::pair<int, int>> ordered;  // key, and rank in the parent
  for (std::size_t r = 0; r < members_.size(); ++r) {
    const auto found = result.blobs.find(members_[r]);
    if (found == result.blobs.end()) continue;
    Unpacker blob(found->second);
    if (blob.value<int>() == color_) ordered.emplace_back(blob.value<int>(), static_cast<int>(r));
  }
  std::sort(ordered.begin(), ordered.end());
  for (const auto& [key, r] : ordered) chosen_.push_back(members_[static_cast<std::size_t>(r)]);
  if (contains(chosen_, own_)) {
    step_ = ChildStep::make;
  } else {
    error_ = Error(Code::internal, "a split without its caller");
  }
}

// --- shrink -----------------------------------------------------------------------------------

Shrink::Shrink(CommKey parent, const std::vector<int>& members, int own,
               std::span<const int> excluded, ChildRounds& rounds, std::uint32_t next_call)
    : parent_(parent), members_(members), own_(own), rounds_(rounds) {
  if (rounds_.why) {
    end(rounds_.why);
    return;
  }
  for (std::size_t r = 0; r < members.size(); ++r) {
    const bool out = std::ranges::find(excluded, static_cast<int>(r)) != excluded.end();
    if (!out && !contains(rounds_.left_out, members[r])) candidates_.push_back(members[r]);
  }
  note_call(next_call);
}

// Describes the shrink to ranks that are in another call.
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

Question Shrink::question(std::uint64_t completed, const std::vector<int>& cut_off) {
  Question question;
  question.key = {parent_, shrink_base + rounds_.shrinks++};
  question.need = ControlPlane::Need::live;
  if (stage_ == Stage::survivors) {
    // The child's key depends on the attempt and on the candidates.
    key_ = mix(mix(parent_, shrink_mark), rounds_.shrinks);
    for (const int member : candidates_) key_ = mix(key_, static_cast<std::uint64_t>(member));
    own_completed_ = completed;
    question.participants = at_their_places(members_, candidates_);
    question.blob = Packer().value(completed).numbers(cut_off).numbers(candidates_).take();
    question.call = call_;
    question.call.round = question.key.round;
  } else {
    question.participants = at_their_places(members_, survivors_);
    question.call.text = call_.text;  // others may be in later calls: none to compare
    if (!not_made_) question.blob = built_mark;
  }
  return question;
}

void Shrink::hear(const GatherResult& result) {
  if (result.error) {
    // A rank that entered this round before the parent was revoked disagreed with the others. All
    // of them were told so and have left the round, so this rank goes on to the next one.
    const bool over = result.error.code() == Code::invalid_usage && stage_ == Stage::survivors;
    return over && call_.number == 0 ? void() : end(result.error);
  }
  return stage_ == Stage::survivors ? hear_survivors(result) : hear_outcome(result);
}

void Shrink::hear_survivors(const GatherResult& result) {
  if (!blob_of(result, own_)) return end(decided_without_us(result));
  std::map<int, std::uint64_t> completed;
  std::vector<Link> dead;
  const std::vector<int> excused = excusable(result);
  std::vector<int> named_by_all = candidates_;
  bool same = true;
  survivors_.clear();
  for (const int member : candidates_) {
    const std::string* blob = blob_of(result, member);
    if (!blob) continue;
    survivors_.push_back(member);
    const Word word(*blob);
    completed[member] = word.completed;
    for (const int other : word.unreached) dead.emplace_back(member, other);
    if (word.whole && word.with == candidates_) continue;
    same = false;
    if (!contains(word.with, own_)) return end(shrunk_without(member));
    if (!word.whole || !same_but(excused, word.with, candidates_)) {
      return end(shrunk_to_others(member));
    }
    std::erase_if(named_by_all, [&](int candidate) { return !contains(word.with, candidate); });
  }
  // Some ranks left out a dead rank by name, and others did not. All ask again with the same
  // candidates.
  if (!same) {
    candidates_ = std::move(named_by_all);
    return;
  }
  std::erase_if(dead, [&](const Link& link) {
    return link.first == link.second || !contains(survivors_, link.second);
  });
  leave_out(dead);
  left_out_ = contains(rounds_.left_out, own_);
  completed_ = left_out_ ? std::numeric_limits<std::uint64_t>::max() : own_completed_;
  for (const int member : survivors_) completed_ = std::min(completed_, completed[member]);
  if (left_out_) return end(rounds_.why);
  step_ = ChildStep::make;
}

// Members that some ranks may leave out and others not: dead ones, and those that somebody cannot
// reach. The latter are soon reported dead, or are left out of the new communicator in any case.
std::vector<int> Shrink::excusable(const GatherResult& result) const {
  std::vector<int> some = result.dead;
  for (const int member : members_) {
    const std::string* blob = blob_of(result, member);
    if (!blob) continue;
    const Word word(*blob);
    if (word.whole) some.insert(some.end(), word.unreached.begin(), word.unreached.end());
  }
  return some;
}

// The error when the other ranks had left this one out before it asked.
Error Shrink::decided_without_us(const GatherResult& result) const {
  for (const int member : members_) {
    if (blob_of(result, member)) return shrunk_without(member);
  }
  return {Code::remote, "nobody is left to shrink this communicator"};
}

Error Shrink::shrunk_to_others(int member) const {
  const int place = place_of(members_, member);
  return {Code::invalid_usage,
          fmt::format("rank {} leaves out other ranks than rank {} in this shrink", place,
                      place_of(members_, own_)),
          place};
}

Error Shrink::shrunk_without(int member) const {
  const int place = place_of(members_, member);
  return {Code::remote,
          fmt::format("rank {} shrinks this communicator without rank {}, which is this one", place,
                      place_of(members_, own_)),
          place};
}

// All ranks compute the same answer. Those that stay do not wait for the others or ask them again.
void Shrink::leave_out(const std::vector<Link>& dead) {
  const std::vector<int> out = cover_of(dead, survivors_);
  for (const int member : out) {
    std::erase(candidates_, member);
    std::erase(survivors_, member);
    rounds_.left_out.push_back(member);
  }
  for (const auto& [one, other] : dead) {
    if (!contains(out, own_) || (one != own_ && other != own_)) continue;
    rounds_.why = Error(
        Code::remote,
        fmt::format("rank {} is left out of the new communicator: the link between "
                    "rank {} and rank {} is dead",
                    place_of(members_, own_), place_of(members_, one), place_of(members_, other)));
  }
}

void Shrink::made(const Error& error) {
  not_made_ = error;
  stage_ = Stage::outcome;
  step_ = ChildStep::ask;
}

// All ranks compute the same answer, whatever else each of them knows by now.
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
  step_ = ChildStep::ask;
}

void Shrink::end(const Error& error) {
  step_ = ChildStep::end;
  error_ = error;
}

}  // namespace pith
