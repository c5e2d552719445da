// What follows from what the ranks of a communicator say when it is to grow.
#include "comm/children/grow_agreement.hpp"

#include <algorithm>
#include <map>

#include "tests/catch.hpp"

namespace {

using namespace pith;

const std::vector<int> parent = {4, 0, 7};  // ranks of the job
constexpr CommKey parent_key = 11;
constexpr std::uint32_t call = 8;
constexpr Secret job = {std::byte{1}, std::byte{2}};

UniqueId id_at(const std::string& address) {
  UniqueId id;
  id.address = address;
  id.members = static_cast<int>(parent.size());
  std::ranges::fill(id.secret, std::byte{0xa5});
  return id;
}

// By rank of the parent.
std::vector<Grow> all_grow(const std::vector<GrowWish>& wishes, std::uint32_t round = 0) {
  std::vector<Grow> grows;
  grows.reserve(wishes.size());
  for (std::size_t r = 0; r < wishes.size(); ++r) {
    ChildRounds rounds;
    rounds.grows = round;
    grows.emplace_back(parent_key, parent, parent[r], rounds, job, call, wishes[r]);
    CHECK(rounds.grows == round + 1);
  }
  return grows;
}

GatherResult answers(const std::vector<Grow>& grows) {
  GatherResult result;
  for (std::size_t r = 0; r < grows.size(); ++r) {
    result.blobs[parent[r]] = grows[r].question().blob;
  }
  return result;
}

// What each rank makes of it.
std::vector<Grow> heard(const std::vector<GrowWish>& wishes) {
  std::vector<Grow> grows = all_grow(wishes);
  const GatherResult result = answers(grows);
  for (Grow& grow : grows) grow.hear(result);
  return grows;
}

void all_fail(const std::vector<Grow>& grows, Code code, const std::string& message) {
  for (const Grow& grow : grows) {
    CHECK(grow.error().code() == code);
    CHECK(std::string(grow.error().message()) == message);
  }
}

}  // namespace

TEST_CASE("all members get the id of the one that made it", "[child]") {
  const UniqueId id = id_at("10.0.0.1:4000");
  for (const std::vector<GrowWish>& wishes : {std::vector<GrowWish>{{5, &id}, {5}, {5}},
                                              {{5}, {5}, {5, &id}},
                                              {{5}, {5, &id}, {5, &id}}}) {
    for (const Grow& grow : heard(wishes)) {
      CHECK_FALSE(grow.error());
      REQUIRE(grow.id());
      CHECK(grow.id()->address == id.address);
      CHECK(grow.id()->secret == id.secret);
      CHECK(grow.id()->members == 3);
    }
  }
}

TEST_CASE("a growth asks all members, under a key of its own in each round", "[child]") {
  ChildRounds rounds;
  const Grow first(parent_key, parent, 4, rounds, job, call, {5});
  const Grow second(parent_key, parent, 4, rounds, job, call, {6});
  CHECK(first.question().participants == parent);
  CHECK(first.question().need == ControlPlane::Need::all);
  CHECK_FALSE(first.question().key == second.question().key);
  const Split split(parent_key, parent, 4, rounds, 0, 0);
  CHECK_FALSE(first.question().key == split.question().key);
  // To ranks in other calls.
  CHECK(first.question().call.number == call);
  CHECK(first.question().call.round == first.question().key.round);
  CHECK(first.question().call.text == "grow to 5 ranks");
  CHECK(first.question().call.digest == second.question().call.digest);
}

TEST_CASE("the secret of an id is not sent as it is, nor twice alike", "[child]") {
  const UniqueId id = id_at("10.0.0.1:4000");
  const UniqueId elsewhere = id_at("10.0.0.1:4001");
  const std::string first = all_grow({{5, &id}})[0].question().blob;
  const std::string secret(reinterpret_cast<const char*>(id.secret.data()), id.secret.size());
  CHECK(first.find(secret.substr(0, 4)) == first.npos);
  CHECK(first != all_grow({{5, &id}}, 1)[0].question().blob);
  const std::string other = all_grow({{5, &elsewhere}})[0].question().blob;
  const std::size_t begin = sizeof(int) + sizeof(std::uint32_t);
  CHECK(first.substr(begin, sizeof(Secret)) != other.substr(begin, sizeof(Secret)));
}

TEST_CASE("members that mean different growths all hear of the difference", "[child]") {
  const UniqueId id = id_at("10.0.0.1:4000");
  const UniqueId other = id_at("10.0.0.1:4001");
  const std::vector<Grow> sizes = heard({{5, &id}, {5}, {6}});
  all_fail(sizes, Code::invalid_usage,
           "rank 2 grows the communicator to 6 ranks, rank 0 to 5; expected the same of all");
  for (const Grow& grow : sizes) {
    REQUIRE(grow.id());  // so that those that join hear of it
    CHECK(grow.id()->address == id.address);
  }
  const std::vector<Grow> none = heard({{5}, {5}, {5}});
  all_fail(none, Code::invalid_usage,
           "no rank gives an id, expected one from pithCommGetUniqueId on one rank");
  CHECK_FALSE(none.front().id());
  all_fail(heard({{5}, {5, &id}, {5, &other}}), Code::invalid_usage,
           "rank 1 and rank 2 give different ids, expected one id");
}

TEST_CASE("members that have made different calls do not grow", "[child]") {
  const UniqueId id = id_at("10.0.0.1:4000");
  std::vector<Grow> grows;
  for (std::size_t r = 0; r < parent.size(); ++r) {
    ChildRounds rounds;
    grows.emplace_back(parent_key, parent, parent[r], rounds, job, r == 1 ? call + 1 : call,
                       GrowWish{5, r == 0 ? &id : nullptr});
  }
  const GatherResult result = answers(grows);
  for (Grow& grow : grows) grow.hear(result);
  all_fail(grows, Code::invalid_usage,
           "rank 1 grows the communicator by its call 9, rank 0 by its call 8; expected the same "
           "calls before it on all");
  for (const Grow& grow : grows) CHECK(grow.id());
}

TEST_CASE("a member that cannot take part is named to the others", "[child]") {
  const UniqueId id = id_at("10.0.0.1:4000");
  const Error unable(Code::invalid_argument, "PITH_LANES is 0");
  const std::vector<Grow> grows = heard({{5, &id}, {5, nullptr, unable}, {5}});
  for (const std::size_t r : {0, 2}) {
    CHECK(grows[r].error().code() == Code::remote);
    CHECK(grows[r].error().rank() == 1);
    CHECK(std::string(grows[r].error().message()) == "rank 1: PITH_LANES is 0");
  }
  CHECK(grows[1].error().code() == Code::invalid_argument);
  CHECK(std::string(grows[1].error().message()) == "PITH_LANES is 0");
}

TEST_CASE("a growth fails with its agreement, or where an answer is none", "[child]") {
  const UniqueId id = id_at("10.0.0.1:4000");
  std::vector<Grow> grows = all_grow({{5, &id}, {5}, {5}});
  GatherResult result;
  result.error = Error(Code::remote, "rank 1 is dead");
  grows[0].hear(result);
  CHECK(std::string(grows[0].error().message()) == "rank 1 is dead");
  CHECK_FALSE(grows[0].id());
  result = answers(grows);
  result.blobs[7] = "abc";
  grows[1].hear(result);
  CHECK(grows[1].error().code() == Code::internal);
  result.blobs.erase(7);
  grows[2].hear(result);
  CHECK(grows[2].error().code() == Code::internal);
}
