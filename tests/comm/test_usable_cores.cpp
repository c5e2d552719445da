// How many cores ranks of one host have between them.
#include "startup/usable_cores.hpp"

#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "catch.hpp"

namespace {

using namespace pith;

UsableCores bound_to(std::uint64_t mask, std::uint32_t limit = 0, std::uint64_t group = 0) {
  UsableCores cores;
  cores.mask = {0, mask};
  cores.limit = limit;
  cores.group = group;
  return cores;
}

// Control groups as files say them.
class Groups {
 public:
  Groups() {
    char name[] = "/tmp/pith-groups-XXXXXX";
    root_ = mkdtemp(name);
  }
  ~Groups() { std::filesystem::remove_all(root_); }
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  UsableCores limit(const std::string& membership) const {
    UsableCores cores;
    cores.read_limit(membership, root_.string());
    return cores;
  }

 private:
  std::filesystem::path root_;
};

}  // namespace

TEST_CASE("ranks of a host have the CPUs of all of them", "[cores]") {
  CHECK(count_cores({}) == 0);
  CHECK(count_cores(std::vector<UsableCores>(8)) == 0);
  CHECK(!are_oversubscribed(std::vector<UsableCores>(8)));
  const std::vector<UsableCores> container(8, bound_to(0b11));
  CHECK(count_cores(container) == 2);
  CHECK(are_oversubscribed(container));
  std::vector<UsableCores> bound;
  for (int rank = 0; rank < 8; ++rank) bound.push_back(bound_to(std::uint64_t{1} << rank));
  CHECK(count_cores(bound) == 8);
  CHECK(!are_oversubscribed(bound));
  bound.push_back(bound_to(1));
  CHECK(are_oversubscribed(bound));
}

TEST_CASE("ranks of one control group share its limit", "[cores]") {
  CHECK(count_cores(std::vector<UsableCores>(4, bound_to(0xff, 3, 1))) == 3);
  CHECK(count_cores(std::vector<UsableCores>(4, bound_to(0b11, 3, 1))) == 2);
  // Two containers, and one without a limit.
  const std::vector<UsableCores> two = {bound_to(0xff, 3, 1), bound_to(0xff, 2, 2),
                                        bound_to(0xff, 2, 2)};
  CHECK(count_cores(two) == 5);
  const std::vector<UsableCores> three = {two[0], two[1], bound_to(0xff)};
  CHECK(count_cores(three) == 8);
}

TEST_CASE("what a rank tells of its cores comes back", "[cores]") {
  const UsableCores told = bound_to(0x80000001, 5, 77);
  const UsableCores heard = UsableCores::unpack(told.pack());
  CHECK(heard.mask == told.mask);
  CHECK(heard.limit == 5);
  CHECK(heard.group == 77);
  CHECK(UsableCores::unpack("").mask.empty());
  CHECK(UsableCores::unpack(told.pack().substr(0, 20)).limit == 0);
}

TEST_CASE("limits of control groups, version 2", "[cores]") {
  const Groups groups;
  groups.write("job/cpu.max", "150000 100000");
  groups.write("job/rank/cpu.max", "max 100000");
  groups.write("job/small/cpu.max", "1 100000");
  groups.write("cpu.max", "400000 100000");
  CHECK(groups.limit("0::/job/rank\n").limit == 2);
  CHECK(groups.limit("0::/job/small\n").limit == 1);
  CHECK(groups.limit("0::/other\n").limit == 4);
  CHECK(groups.limit("0::/\n").limit == 4);
  CHECK(groups.limit("0::/job/rank\n").group == groups.limit("0::/job\n").group);
  CHECK(groups.limit("0::/job/rank\n").group != groups.limit("0::/\n").group);
  for (const char* text : {"", "\n", "0", "0:", "0::", "::\n::", "x:y:z"}) {
    INFO(text);
    CHECK(groups.limit(text).limit <= 4);
  }
}

TEST_CASE("limits of control groups, version 1", "[cores]") {
  const Groups groups;
  const std::string folder = "cpu,cpuacct/";
  groups.write(folder + "cpu.cfs_quota_us", "-1");
  groups.write(folder + "cpu.cfs_period_us", "100000");
  const std::string text = "7:cpuset:/job\n4:cpu,cpuacct:/job/rank\n1:name=systemd:/\n";
  CHECK(groups.limit(text).limit == 0);
  groups.write(folder + "job/cpu.cfs_quota_us", "250000");
  groups.write(folder + "job/cpu.cfs_period_us", "100000");
  CHECK(groups.limit(text).limit == 3);
  // A container that sees its own group as the root, and the path of the host.
  groups.write(folder + "cpu.cfs_quota_us", "100000");
  CHECK(groups.limit("4:cpu,cpuacct:/docker/0123\n").limit == 1);
}

TEST_CASE("a thread tells where it is bound", "[cores]") {
  const std::size_t all = count_cores(std::vector{UsableCores::of_this_thread()});
  CHECK(all >= 1);
  CHECK(all <= static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_CONF)));
  std::size_t bound = 0;
  std::thread([&bound] {
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    int first = 0;
    while (!CPU_ISSET(first, &mine)) ++first;
    CPU_ZERO(&mine);
    CPU_SET(static_cast<std::size_t>(first), &mine);
    sched_setaffinity(0, sizeof mine, &mine);
    bound = count_cores(std::vector(8, UsableCores::of_this_thread()));
  }).join();
  CHECK(bound == 1);
}
