// What follows from the answers of a split and of a shrink.
#include "comm/children/child_agreement.hpp"

#include <array>
#include <map>
#include <numeric>

#include "tests/catch.hpp"

namespace {

using namespace pith;

const std::vector<int> parent = {4, 0, 7, 2};  // ranks of the job
constexpr CommKey parent_key = 11;
constexpr std::uint32_t revoked = 0;  // no call comes next

std::string color_and_key(int color, int key) { return Packer().value(color).value(key).take(); }
// What a rank says in a shrink.
std::string completed(std::uint64_t calls, const std::vector<int>& unreached,
                      const std::vector<int>& with) {
  return Packer().value(calls).numbers(unreached).numbers(with).take();
}

GatherResult failed(const char* why) {
  GatherResult result;
  result.error = Error(Code::remote, why);
  return result;
}

GatherResult colors() {
  GatherResult result;
  result.blobs = {{4, color_and_key(1, 3)},
                  {0, color_and_key(0, 0)},
                  {7, color_and_key(1, -1)},
                  {2, color_and_key(1, 3)}};
  return result;
}

// All four answer but those; they have completed so many calls, and name these candidates.
GatherResult living(const std::vector<int>& dead = {}, const std::vector<int>& with = parent) {
  constexpr std::array<std::uint64_t, 4> calls = {9, 8, 7, 10};
  GatherResult result;
  for (std::size_t r = 0; r < parent.size(); ++r) {
    result.blobs[parent[r]] = completed(calls.at(r), {}, with);
  }
  for (const int rank : dead) result.blobs.erase(rank);
  result.dead = dead;
  return result;
}

GatherResult outcome(const std::vector<int>& built, const std::vector<int>& not_built = {}) {
  GatherResult result;
  for (const int rank : built) result.blobs[rank] = "built";
  for (const int rank : not_built) result.blobs[rank] = "";
  return result;
}

}  // namespace

TEST_CASE("a split orders the ranks of a color by key, then by rank", "[child]") {
  ChildRounds rounds;
  Split split(parent_key, parent, 2, rounds, 1, 3);
  REQUIRE(split.step() == ChildStep::ask);
  CHECK(split.question().participants == parent);
  CHECK(split.question().need == ControlPlane::Need::all);
  CHECK(split.question().blob == color_and_key(1, 3));
  split.hear(colors());
  CHECK(split.step() == ChildStep::make);
  CHECK(split.members() == std::vector<int>{7, 4, 2});

  Split other(parent_key, parent, 0, rounds, 0, 0);
  CHECK_FALSE(other.question().key == split.question().key);
  other.hear(colors());
  CHECK(other.members() == std::vector<int>{0});
  CHECK(other.key() != split.key());
}

TEST_CASE("a split without a color ends without a child", "[child]") {
  ChildRounds rounds;
  Split split(parent_key, parent, 0, rounds, Split::no_color, 0);
  split.hear(colors());
  CHECK(split.step() == ChildStep::end);
  CHECK_FALSE(split.error());
}

TEST_CASE("a split that fails, or without its caller, is an error", "[child]") {
  ChildRounds rounds;
  Split split(parent_key, parent, 7, rounds, 1, 0);
  split.hear(failed("rank 1 is dead"));
  CHECK(split.step() == ChildStep::end);
  CHECK(std::string(split.error().message()) == "rank 1 is dead");
  Split lost(parent_key, parent, 0, rounds, 1, 0);
  lost.hear(colors());
  CHECK(lost.error().code() == Code::internal);
}

TEST_CASE("a shrink leaves out the dead and the excluded, and takes the least that was completed",
          "[child]") {
  ChildRounds rounds;
  const int excluded[] = {3};
  Shrink shrink(parent_key, parent, 4, excluded, rounds, revoked);
  const Question question = shrink.question(9);
  CHECK(question.participants == std::vector<int>{4, 0, 7, -1});
  CHECK(question.need == ControlPlane::Need::live);
  shrink.hear(living({0}, {4, 0, 7}));
  REQUIRE(shrink.step() == ChildStep::make);
  CHECK(shrink.members() == std::vector<int>{4, 7});
  CHECK(shrink.completed() == 7);
  CHECK_FALSE(shrink.was_made());
  shrink.made(Error());
  CHECK(shrink.was_made());
  CHECK(shrink.question(9).participants == std::vector<int>{4, -1, 7, -1});
  shrink.hear(outcome({4, 7}));
  CHECK(shrink.step() == ChildStep::end);
  CHECK(shrink.built());
  CHECK_FALSE(shrink.error());
}

TEST_CASE("a shrink of what is not revoked says what it is, and before which call", "[child]") {
  ChildRounds rounds;
  const int excluded[] = {3, 1, 3};
  Shrink shrink(parent_key, parent, 4, excluded, rounds, 8);
  const Question question = shrink.question(7);
  CHECK(question.call.number == 8);
  CHECK(question.call.round == question.key.round);
  CHECK(question.call.text == "shrink without rank 1, rank 3");
  CHECK(question.call.without == std::vector<int>{0, 2});
  // The same to all who leave out the same, and another one to the others.
  const auto digest = [](std::span<const int> without) {
    ChildRounds other;
    return Shrink(parent_key, parent, 4, without, other, 8).question(0).call.digest;
  };
  const int same[] = {1, 3};
  CHECK(digest(same) == question.call.digest);
  CHECK(digest({}) != question.call.digest);
  shrink.hear(living({}, {4, 7}));
  shrink.made(Error());
  CHECK(shrink.question(7).call.number == 0);  // all have called it by now

  ChildRounds later;
  Shrink lost(parent_key, parent, 4, {}, later, revoked);
  const CallNote unnumbered = lost.question(7).call;
  CHECK(unnumbered.number == 0);
  CHECK(unnumbered.text == "shrink");
}

TEST_CASE("a shrink names some of many that it leaves out", "[child]") {
  std::vector<int> many(12);
  std::iota(many.begin(), many.end(), 0);
  ChildRounds rounds;
  Shrink shrink(parent_key, many, 0, std::span(many).subspan(1), rounds, 1);
  const CallNote call = shrink.question(0).call;
  CHECK(call.text ==
        "shrink without rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7, rank 8 and 3 more");
  CHECK(call.without.size() == 11);
}

TEST_CASE("a shrink of what is revoked passes over a round in which others disagreed", "[child]") {
  GatherResult disagreed;
  disagreed.error = Error(Code::invalid_usage, "ranks disagree");
  for (const std::uint32_t next_call : {revoked, 8u}) {
    ChildRounds rounds;
    Shrink shrink(parent_key, parent, 4, {}, rounds, next_call);
    const std::uint32_t round = shrink.question(1).key.round;
    shrink.hear(disagreed);
    CHECK(shrink.error().code() == (next_call == revoked ? Code::success : Code::invalid_usage));
    REQUIRE(shrink.step() == (next_call == revoked ? ChildStep::ask : ChildStep::end));
    // In either case the next one comes behind it.
    Shrink again(parent_key, parent, 4, {}, rounds, revoked);
    Shrink& next = next_call == revoked ? shrink : again;
    CHECK(next.question(1).key.round == round + 1);
    next.hear(living());
    CHECK(next.step() == ChildStep::make);
  }
}

TEST_CASE("a shrink in which ranks die tries again without them", "[child]") {
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 4, {}, rounds, revoked);
  std::vector<CommKey> keys;
  std::vector<std::uint32_t> asked;
  std::vector<int> dead;
  for (const int next : {0, 7}) {
    asked.push_back(shrink.question(9).key.round);
    shrink.hear(living(dead));
    keys.push_back(shrink.key());
    shrink.made(failed("a member is dead").error);
    asked.push_back(shrink.question(9).key.round);
    dead.push_back(next);
    GatherResult result = outcome({}, shrink.members());
    result.dead = dead;
    shrink.hear(result);
    REQUIRE(shrink.step() == ChildStep::ask);
    CHECK_FALSE(shrink.built());
  }
  asked.push_back(shrink.question(9).key.round);
  shrink.hear(living(dead));
  CHECK(shrink.members() == std::vector<int>{4, 2});
  CHECK(shrink.completed() == 9);
  keys.push_back(shrink.key());
  shrink.made(Error());
  asked.push_back(shrink.question(9).key.round);
  shrink.hear(outcome({4, 2}));
  CHECK(shrink.built());
  // No round and no communicator has the name of another.
  for (std::size_t i = 1; i < asked.size(); ++i) CHECK(asked[i] == asked[i - 1] + 1);
  CHECK((keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]));
}

TEST_CASE("a shrink that some could not make is an error on all of them", "[child]") {
  for (const bool here : {true, false}) {
    ChildRounds rounds;
    Shrink shrink(parent_key, parent, 4, {}, rounds, revoked);
    static_cast<void>(shrink.question(1));
    shrink.hear(living());
    shrink.made(here ? Error() : Error(Code::system, "no descriptors"));
    CHECK(shrink.question(1).blob.empty() == !here);
    shrink.hear(outcome({4, 0, 7}, {2}));
    CHECK(shrink.step() == ChildStep::end);
    CHECK_FALSE(shrink.built());
    CHECK(shrink.error().code() == (here ? Code::remote : Code::system));
  }
}

TEST_CASE("a shrink in which ranks die for ever ends", "[child]") {
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 4, {}, rounds, revoked);
  int attempts = 0;
  while (shrink.step() != ChildStep::end) {
    static_cast<void>(shrink.question(1));
    shrink.hear(living());
    shrink.made(Error());
    static_cast<void>(shrink.question(1));
    shrink.hear(outcome({4}));
    REQUIRE(++attempts <= 4);
  }
  CHECK(attempts == 4);
  CHECK(shrink.error().code() == Code::remote);
}

namespace {

// What members say: each has completed 10 calls less its place, and does not reach these.
GatherResult living_with(const std::map<int, std::vector<int>>& cut_off) {
  GatherResult result;
  for (std::size_t r = 0; r < parent.size(); ++r) {
    const auto found = cut_off.find(parent[r]);
    const std::vector<int> unreached = found == cut_off.end() ? std::vector<int>() : found->second;
    result.blobs[parent[r]] = completed(10 - r, unreached, parent);
  }
  return result;
}

// The members of the new communicator, which all that are in it agree on; the others are told why.
std::vector<int> survivors_of(const GatherResult& answers) {
  std::vector<int> survivors;
  std::vector<int> in;
  for (const int own : parent) {
    ChildRounds rounds;
    Shrink shrink(parent_key, parent, own, {}, rounds, revoked);
    static_cast<void>(shrink.question(10));
    shrink.hear(answers);
    if (shrink.step() == ChildStep::end) {
      CHECK(shrink.error().code() == Code::remote);
      CHECK_FALSE(shrink.built());
      continue;
    }
    in.push_back(own);
    if (survivors.empty()) survivors = shrink.members();
    CHECK(shrink.members() == survivors);
  }
  CHECK(in == survivors);
  return survivors;
}

}  // namespace

TEST_CASE("a shrink takes the links that a rank has told for its own", "[child]") {
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 4, {}, rounds, revoked);
  CHECK(shrink.question(9, {7}).blob == completed(9, {7}, parent));
}

namespace {

// What a member says in a shrink that leaves out these places of the parent.
void add_word(GatherResult& answers, int member, std::vector<int> excluded, ChildRounds& rounds) {
  Shrink shrink(parent_key, parent, member, excluded, rounds, revoked);
  answers.blobs[member] = shrink.question(10).blob;
}

}  // namespace

TEST_CASE("ranks that leave out different ranks are told of each other", "[child]") {
  GatherResult answers;
  std::array<ChildRounds, 3> others;
  add_word(answers, 4, {3}, others[0]);
  add_word(answers, 0, {2}, others[1]);
  add_word(answers, 7, {3}, others[2]);
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 4, std::array{3}, rounds, revoked);
  static_cast<void>(shrink.question(10));
  shrink.hear(answers);
  REQUIRE(shrink.step() == ChildStep::end);
  CHECK_FALSE(shrink.built());
  CHECK(shrink.error().code() == Code::invalid_usage);
  CHECK(std::string(shrink.error().message()) ==
        "rank 1 leaves out other ranks than rank 0 in this shrink");
}

TEST_CASE("who shrinks a communicator that others shrink without it is told so", "[child]") {
  GatherResult answers;
  std::array<ChildRounds, 3> others;
  add_word(answers, 4, {2}, others[0]);
  add_word(answers, 0, {2}, others[1]);
  add_word(answers, 7, {}, others[2]);
  for (const bool in_time : {true, false}) {
    if (!in_time) answers.blobs.erase(7);
    ChildRounds rounds;
    Shrink shrink(parent_key, parent, 7, {}, rounds, revoked);
    static_cast<void>(shrink.question(10));
    shrink.hear(answers);
    REQUIRE(shrink.step() == ChildStep::end);
    CHECK(shrink.error().code() == Code::remote);
    CHECK(std::string(shrink.error().message()) ==
          "rank 0 shrinks this communicator without rank 2, which is this one");
  }
}

TEST_CASE("what a rank says wrongly in a shrink is no consent", "[child]") {
  GatherResult answers = living();
  answers.blobs[0] = "built";
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 4, {}, rounds, revoked);
  static_cast<void>(shrink.question(10));
  shrink.hear(answers);
  REQUIRE(shrink.step() == ChildStep::end);
  CHECK_FALSE(shrink.built());
}

TEST_CASE("a shrink that finds nobody is an error", "[child]") {
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 7, {}, rounds, revoked);
  static_cast<void>(shrink.question(10));
  shrink.hear(GatherResult());
  REQUIRE(shrink.step() == ChildStep::end);
  CHECK(shrink.error().code() == Code::remote);
}

TEST_CASE("who names the dead in a shrink and who does not mean the same", "[child]") {
  const bool is_dead = GENERATE(true, false);  // or only out of the reach of one of them
  const std::map<int, std::vector<int>> excluded = {{4, {2}}, {0, {}}, {2, {2}}};
  std::map<int, ChildRounds> rounds;
  std::map<int, Shrink> shrinks;
  for (const auto& [member, places] : excluded) {
    shrinks.try_emplace(member, parent_key, parent, member, places, rounds[member], revoked);
  }
  for (int asked = 0; asked < 2; ++asked) {
    GatherResult answers;
    if (is_dead) answers.dead = {7};
    for (auto& [member, shrink] : shrinks) {
      const bool apart = !is_dead && member == 4;
      answers.blobs[member] =
          shrink.question(10, apart ? std::vector<int>{7} : std::vector<int>()).blob;
    }
    for (auto& [member, shrink] : shrinks) {
      shrink.hear(answers);
      CHECK(shrink.step() == (asked == 0 ? ChildStep::ask : ChildStep::make));
    }
  }
  for (const auto& [member, shrink] : shrinks) {
    CHECK(shrink.members() == std::vector<int>{4, 0, 2});
    CHECK(shrink.key() == shrinks.at(4).key());
  }
}

TEST_CASE("who is left out of a shrink because another rank cannot reach it is told", "[child]") {
  GatherResult answers;
  std::array<ChildRounds, 2> others;
  const std::array excluded{2};
  Shrink apart(parent_key, parent, 4, excluded, others[0], revoked);
  answers.blobs[4] = apart.question(10, {7}).blob;
  add_word(answers, 0, {}, others[1]);
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 7, {}, rounds, revoked);
  answers.blobs[7] = shrink.question(10).blob;
  shrink.hear(answers);
  REQUIRE(shrink.step() == ChildStep::end);
  CHECK(std::string(shrink.error().message()) ==
        "rank 0 shrinks this communicator without rank 2, which is this one");
}

TEST_CASE("of two ranks without a link a shrink leaves out the last, whoever tells", "[child]") {
  const std::vector<int> left = {4, 0, 2};
  CHECK(survivors_of(living_with({{7, {0}}})) == left);
  CHECK(survivors_of(living_with({{0, {7}}})) == left);
  CHECK(survivors_of(living_with({{0, {7}}, {7, {0}}})) == left);
}

TEST_CASE("a shrink leaves out those with most dead links first", "[child]") {
  CHECK(survivors_of(living_with({{0, {4, 7, 2}}})) == std::vector<int>{4, 7, 2});
  // A host of two and a host of two.
  CHECK(survivors_of(living_with({{4, {7, 2}}, {0, {7, 2}}})) == std::vector<int>{4, 0});
  CHECK(survivors_of(living_with({{4, {0}}, {7, {2}}})) == std::vector<int>{4, 7});
}

TEST_CASE("a shrink leaves nobody out for links to the dead and to strangers", "[child]") {
  GatherResult answers = living_with({{4, {7, 99, 4}}});
  answers.dead = {7};
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 4, {}, rounds, revoked);
  static_cast<void>(shrink.question(10));
  shrink.hear(answers);
  CHECK(shrink.members() == std::vector<int>{4, 0, 2});
  CHECK(rounds.left_out.empty());
}

TEST_CASE("who is left out is told why, at every later shrink as well", "[child]") {
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 7, {}, rounds, revoked);
  static_cast<void>(shrink.question(10));
  shrink.hear(living_with({{7, {0}}}));
  REQUIRE(shrink.step() == ChildStep::end);
  CHECK(std::string(shrink.error().message()) ==
        "rank 2 is left out of the new communicator: the link between rank 2 and rank 1 is dead");
  const Shrink again(parent_key, parent, 7, {}, rounds, revoked);
  CHECK(again.step() == ChildStep::end);
  CHECK(std::string(again.error().message()) == shrink.error().message());
}

TEST_CASE("who stays neither asks those who are left out again nor waits for them", "[child]") {
  ChildRounds rounds;
  Shrink shrink(parent_key, parent, 4, {}, rounds, revoked);
  static_cast<void>(shrink.question(10));
  shrink.hear(living_with({{7, {2}}}));
  CHECK(shrink.members() == std::vector<int>{4, 0, 7});
  CHECK(shrink.completed() == 8);  // of those who stay
  shrink.made(Error());
  CHECK(shrink.question(10).participants == std::vector<int>{4, 0, 7, -1});
  GatherResult died = outcome({4, 7});
  died.dead = {0};
  shrink.hear(died);
  REQUIRE(shrink.step() == ChildStep::ask);
  CHECK(shrink.question(10).participants == std::vector<int>{4, 0, 7, -1});
  Shrink later(parent_key, parent, 4, {}, rounds, revoked);
  CHECK(later.question(10).participants == std::vector<int>{4, 0, 7, -1});
}
