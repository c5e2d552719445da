#include "comm/children/grow_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>

#include "control/members.hpp"
#include "core/packing.hpp"
#include "crypto/sha256.hpp"

namespace pith {

namespace {

// The parent's rounds, beside those of splits and shrinks.
constexpr std::uint32_t grow_base = 0x30000000;
constexpr std::uint64_t grow_mark = 0x67726f77;

// Tells ranks in other calls what this is; ranks that grow compare what they say.
CallNote note_of(std::uint32_t call, std::uint32_t round, int ranks) {
  CallNote note;
  note.number = call;
  note.digest = grow_mark;
  note.text = fmt::format("grow to {} ranks", ranks);
  note.round = round;
  return note;
}

}  // namespace

Grow::Grow(CommKey parent, const std::vector<int>& members, int own, ChildRounds& rounds,
           const Secret& job, std::uint32_t call, const GrowWish& wish)
    : key_{parent, grow_base + rounds.grows++},
      members_(members),
      own_(own),
      job_(job),
      unable_(wish.unable),
      call_(note_of(call, key_.round, wish.ranks)) {
  std::string id;
  if (wish.id) {
    id = Packer().value(masked(wish.id->secret, wish.id->address)).text(wish.id->address).take();
  }
  blob_ = Packer().value(wish.ranks).text(id).text(wish.unable.message()).value(call).take();
}

Question Grow::question() const { return {key_, ControlPlane::Need::all, members_, blob_, call_}; }

// The mask differs between rounds, and between ids at one address.
Secret Grow::masked(Secret secret, const std::string& address) const {
  const std::string of = Packer().value(key_.comm).value(key_.round).text(address).take();
  const Digest mask = hmac_sha256(job_, std::as_bytes(std::span(of)));
  std::ranges::transform(secret, mask, secret.begin(), std::bit_xor());
  return secret;
}

void Grow::take_id(std::string_view sent) {
  Unpacker in(sent);
  const auto secret = in.value<Secret>();
  id_.address = in.text();
  id_.secret = masked(secret, id_.address);
  id_.members = static_cast<int>(members_.size());
}

void Grow::hear(const GatherResult& result) { error_ = judge(result); }

Error Grow::judge(const GatherResult& result) {
  if (result.error) return result.error;
  std::vector<Word> words;
  for (const int member : members_) {
    const auto found = result.blobs.find(member);
    if (found == result.blobs.end()) return {Code::internal, "a rank has not said how to grow"};
    Unpacker in(found->second);
    Word& word = words.emplace_back();
    word.ranks = in.value<int>();
    word.id = in.text();
    word.unable = in.text();
    word.call = in.value<std::uint32_t>();
    if (!in.whole()) return {Code::internal, "a rank has said nonsense about how to grow"};
  }
  return compare(words);
}

// The id comes first: the ranks that join hear of an error from its root.
Error Grow::compare(const std::vector<Word>& words) {
  int giver = -1;
  int other_giver = -1;
  for (std::size_t r = 0; r < words.size(); ++r) {
    if (words[r].id.empty()) continue;
    const int rank = static_cast<int>(r);
    if (giver < 0) {
      giver = rank;
      take_id(words[r].id);
    } else if (words[r].id != words[static_cast<std::size_t>(giver)].id) {
      other_giver = rank;
    }
  }
  for (std::size_t r = 0; r < words.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (!words[r].unable.empty()) {
      if (members_[r] == own_) return unable_;
      return {Code::remote, fmt::format("rank {}: {}", rank, words[r].unable), rank};
    }
    if (words[r].ranks == words.front().ranks) continue;
    return {Code::invalid_usage,
            fmt::format("rank {} grows the communicator to {} ranks, rank 0 to {}; expected the "
                        "same of all",
                        rank, words[r].ranks, words.front().ranks),
            rank};
  }
  if (Error error = compare_calls(words)) return error;
  if (giver < 0) {
    return {Code::invalid_usage,
            "no rank gives an id, expected one from pithCommGetUniqueId on one rank"};
  }
  if (other_giver < 0) return {};
  return {
      Code::invalid_usage,
      fmt::format("rank {} and rank {} give different ids, expected one id", giver, other_giver),
      other_giver};
}

// A call without elements needs no message, so a rank may have made one more or less.
Error Grow::compare_calls(const std::vector<Word>& words) {
  for (std::size_t r = 0; r < words.size(); ++r) {
    if (words[r].call == words.front().call) continue;
    const int rank = static_cast<int>(r);
    return {Code::invalid_usage,
            fmt::format("rank {} grows the communicator by its call {}, rank 0 by its call {}; "
                        "expected the same calls before it on all",
                        rank, words[r].call, words.front().call),
            rank};
  }
  return {};
}

}  // namespace pith
