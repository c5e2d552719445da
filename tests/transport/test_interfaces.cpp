// Which interface a process listens on: the choice itself, on invented machines.
#include "catch.hpp"
#include "transport/interfaces.hpp"
#include "transport/socket.hpp"

using namespace pith;

namespace {

std::vector<Interface> machine() {
  return {{"lo", "127.0.0.1", true},        {"docker0", "172.17.0.1", false},
          {"br-4711", "172.18.0.1", false}, {"eth0", "10.0.0.1", false},
          {"eth1", "10.0.1.1", false},      {"eth10", "10.0.10.1", false},
          {"ib0", "192.168.0.1", false},    {"lo", "::1", true},
          {"eth0", "fd00::1", false},       {"eth6", "fd06::1", false}};
}

std::string chosen(const std::vector<Interface>& interfaces, std::string_view names,
                   std::string_view family = {}) {
  const Expected<std::string> host = choose_host(interfaces, {names, family});
  return host ? *host : "none";
}

}  // namespace

TEST_CASE("interfaces: without a wish loopback and bridges come last", "[interfaces]") {
  std::vector<Interface> some = machine();
  CHECK(chosen(some, "") == "10.0.0.1");
  CHECK(chosen(some, "", "AF_INET") == "10.0.0.1");
  CHECK(chosen(some, "", "AF_INET6") == "fd00::1");
  some.resize(3);
  CHECK(chosen(some, "") == "172.17.0.1");
  CHECK(chosen(some, "", "AF_INET6") == "none");
  some.resize(1);
  CHECK(chosen(some, "") == "127.0.0.1");
  CHECK(chosen({}, "") == "none");
  CHECK(chosen({{"lo", "::1", true}}, "") == "::1");
  CHECK(chosen({{"virbr0", "10.0.0.1", false}, {"wlan0", "fd00::2", false}}, "") == "fd00::2");
}

TEST_CASE("interfaces: NCCL's four forms", "[interfaces]") {
  const std::vector<Interface> some = machine();
  CHECK(chosen(some, "eth") == "10.0.0.1");
  CHECK(chosen(some, "eth1") == "10.0.1.1");
  CHECK(chosen(some, "eth10") == "10.0.10.1");
  CHECK(chosen(some, "ib,nothing") == "192.168.0.1");
  CHECK(chosen(some, "eth6") == "fd06::1");
  CHECK(chosen(some, "eth6", "AF_INET") == "none");
  CHECK(chosen(some, "eth", "AF_INET6") == "fd00::1");

  CHECK(chosen(some, "=eth1") == "10.0.1.1");
  CHECK(chosen(some, "=eth") == "none");
  CHECK(chosen(some, "=ib0,eth10") == "10.0.10.1");  // the system's order, as in NCCL

  CHECK(chosen(some, "^eth0") == "10.0.1.1");
  CHECK(chosen(some, "^eth") == "192.168.0.1");
  CHECK(chosen(some, "^eth,ib") == "172.17.0.1");
  CHECK(chosen(some, "^eth,ib,docker,br-") == "127.0.0.1");
  CHECK(chosen(some, "^e,i,d,b,l") == "none");

  CHECK(chosen(some, "^=eth0,eth1") == "10.0.10.1");
  CHECK(chosen(some, "^=eth") == "10.0.0.1");
  CHECK(chosen(some, "^=eth0", "AF_INET6") == "fd06::1");
}

TEST_CASE("interfaces: who names one gets it, whatever it is", "[interfaces]") {
  const std::vector<Interface> some = machine();
  CHECK(chosen(some, "lo") == "127.0.0.1");
  CHECK(chosen(some, "lo", "AF_INET6") == "::1");
  CHECK(chosen(some, "docker") == "172.17.0.1");
  CHECK(chosen(some, "eth0,docker0,lo") == "127.0.0.1");  // the first of the system's
}

TEST_CASE("interfaces: rails are other interfaces of the same family", "[interfaces]") {
  const std::vector<Interface> some = machine();
  using Hosts = std::vector<std::string>;
  const auto rails = [&](std::string_view names, std::string_view host, std::size_t most = 7) {
    return choose_rails(some, {names, ""}, host, most);
  };
  const Hosts all = rails("", "10.0.0.1");
  CHECK(std::ranges::find(all, "10.0.0.1") == all.end());
  CHECK(std::ranges::find(all, "127.0.0.1") == all.end());
  CHECK(std::ranges::find(all, "172.17.0.1") == all.end());
  CHECK(std::ranges::find(all, "10.0.10.1") != all.end());
  CHECK(rails("", "10.0.0.1", 1).size() == 1);
  CHECK(rails("", "10.0.0.1", 0).empty());
  CHECK(rails("=eth0", "10.0.0.1").empty());
  CHECK(rails("=eth0,docker0", "10.0.0.1") == Hosts{"172.17.0.1"});
  CHECK(rails("", "192.0.2.99").empty());  // not of this machine
  for (const std::string& one : rails("", "fd06::1")) CHECK(one.find(':') != one.npos);
}

TEST_CASE("interfaces: an error names the wish and what there is", "[interfaces]") {
  const std::vector<Interface> some = {{"lo", "127.0.0.1", true}, {"eth0", "fd00::1", false}};
  const auto text = [&](std::string_view names, std::string_view family) {
    const Expected<std::string> host = choose_host(some, {names, family});
    REQUIRE_FALSE(host);
    CHECK(host.error().code() == Code::invalid_usage);
    return std::string(host.error().message());
  };
  CHECK(text("=eth1", "") ==
        "no network interface to listen on: PITH_IFNAME is \"=eth1\", and those that are up are "
        "lo (127.0.0.1), eth0 (fd00::1)");
  CHECK(text("eth0", "AF_INET")
            .find("PITH_IFNAME is \"eth0\" and PITH_SOCKET_FAMILY is \"AF_INET\", and those") !=
        std::string::npos);
  const Expected<std::string> nowhere = choose_host({}, {});
  REQUIRE_FALSE(nowhere);
  CHECK(std::string(nowhere.error().message()).find("are up are none") != std::string::npos);
}

TEST_CASE("interfaces: this machine's can be listened on", "[interfaces]") {
  const Expected<std::vector<Interface>> here = list_interfaces();
  REQUIRE(here);
  for (const Interface& one : *here) {
    INFO(one.name << " " << one.host);
    CHECK(one.host.find('%') == std::string::npos);
    if (!one.loopback) continue;  // nothing is opened to a network by a test
    const Expected<Descriptor> listener = listen_on(one.host);
    REQUIRE(listener);
    const Expected<Address> address = local_address(listener->get());
    REQUIRE(address);
    CHECK(format_host(*address) == one.host);
  }
}
