// The answers of a split, a growth and a shrink: blobs of other ranks, whatever is in them.
#include "comm/children/child_agreement.hpp"
#include "comm/children/grow_agreement.hpp"
#include "control/members.hpp"
#include "fuzz_target.hpp"

namespace pith::fuzz {

namespace {

const std::vector<int> members = {4, 0, 7, 2, 9};  // ranks of the job
constexpr int own = 7;

bool are_apart(std::vector<int> some) {
  std::sort(some.begin(), some.end());
  return std::adjacent_find(some.begin(), some.end()) == some.end();
}

// For each member a byte: nothing came, or it is dead; and how long its blob is.
GatherResult answer(Bites& bites) {
  GatherResult result;
  for (const int member : members) {
    const std::uint8_t what = bites.byte();
    if (what % 8 == 0) continue;
    if (what % 8 == 1) result.dead.push_back(member);
    result.blobs[member] = bites.bytes(bites.byte() % 64);
  }
  return result;
}

void split(Bites& bites) {
  ChildRounds rounds;
  const int color = bites.byte() % 3 - 1;
  Split split(1, members, own, rounds, color, bites.byte());
  GatherResult result = answer(bites);
  if (bites.byte() % 4 != 0) result.blobs[own] = split.question().blob;
  split.hear(result);
  expect(split.step() != ChildStep::ask);
  if (split.step() == ChildStep::end) return;
  expect(color != Split::no_color && contains(split.members(), own));
  expect(are_apart(split.members()));
  for (const int member : split.members()) {
    expect(contains(members, member) && result.blobs.contains(member));
  }
}

void grow(Bites& bites) {
  ChildRounds rounds;
  Grow grow(1, members, own, rounds, {}, 1, {bites.byte()});
  GatherResult result = answer(bites);
  if (bites.byte() % 4 != 0) result.blobs[own] = grow.question().blob;
  grow.hear(result);
  expect(grow.error() || (grow.id() && result.blobs.size() == members.size()));
}

void shrink(Bites& bites) {
  ChildRounds rounds;
  const int excluded[] = {bites.byte() % 7 - 1};
  Shrink shrink(1, members, own, excluded, rounds, bites.byte() % 2);
  std::size_t made = 0;
  std::uint64_t completed = 0;
  while (shrink.step() != ChildStep::end) {
    if (shrink.step() == ChildStep::make) {
      expect(++made <= members.size() && are_apart(shrink.members()));
      expect(shrink.completed() <= completed && !contains(rounds.left_out, own));
      for (const int member : shrink.members()) {
        expect(place_of(members, member) >= 0 && place_of(members, member) != excluded[0]);
      }
      shrink.made(bites.byte() % 4 == 0 ? Error(Code::remote, "not made") : Error());
      continue;
    }
    completed = bites.byte();
    static_cast<void>(shrink.question(completed));
    shrink.hear(answer(bites));
  }
  expect(shrink.built() != static_cast<bool>(shrink.error()));
}

std::string told(const std::vector<std::string>& blobs) {
  std::string text;
  for (const std::string& blob : blobs) text += char{2} + (static_cast<char>(blob.size()) + blob);
  return text;
}

}  // namespace

void run(std::span<const std::uint8_t> input) {
  Bites bites(input);
  const std::uint8_t which = bites.byte();
  if (which == 2) return grow(bites);
  return which % 2 == 0 ? split(bites) : shrink(bites);
}

std::vector<std::string> seeds() {
  const auto color_and_key = [](int color, int key) {
    return Packer().value(color).value(key).take();
  };
  const auto completed = [](std::uint64_t calls) {
    return Packer().value(calls).numbers({calls < 6 ? 2 : 9}).numbers(members).take();
  };
  const std::string splitting =
      std::string{0, 2, 5} + told({color_and_key(1, 3), color_and_key(0, 0), color_and_key(1, -1),
                                   color_and_key(1, 3), color_and_key(-1, 0)});
  const std::string shrinking =
      std::string{1, 2, 1, 9} +
      told({completed(9), completed(4), completed(7), completed(4), completed(5)}) +
      std::string{1, 9} + told({"built", "built", "built", "built", "built"});
  const auto grows_to = [](int ranks, const std::string& id) {
    return Packer().value(ranks).text(id).text("").take();
  };
  const std::string id = Packer().value(Secret{}).text("[::1]:1").take();
  const std::string growing =
      std::string{2, 9} +
      told({grows_to(9, id), grows_to(9, ""), grows_to(9, ""), grows_to(9, ""), grows_to(9, "")});
  return {splitting, shrinking, growing};
}

}  // namespace pith::fuzz
