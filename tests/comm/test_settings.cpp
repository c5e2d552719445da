// The small parts of start-up: settings, ids, blobs.
#include "catch.hpp"
#include "settings/settings.hpp"
#include "settings/transport_rule.hpp"
#include "startup/blob.hpp"
#include "startup/unique_id.hpp"
#include "tests/variable.hpp"

using namespace pith;
using pith::test::Variable;

TEST_CASE("settings: defaults and values", "[settings]") {
  const Expected<Settings> plain = settings_from_environment();
  REQUIRE(plain);
  CHECK(plain->lanes == 0);
  CHECK(plain->heartbeat == 10);
  CHECK(plain->timeout == 300);
  CHECK(plain->init_timeout == 120);
  const Variable chunk("PITH_CHUNK", "4096");
  const Variable lanes("PITH_LANES", "2");
  const Variable timeout("PITH_INIT_TIMEOUT", "1.5");
  const Variable host("PITH_HOST", "");
  const Expected<Settings> set = settings_from_environment();
  REQUIRE(set);
  CHECK(set->chunk == 4096);
  CHECK(set->lanes == 2);
  CHECK(set->init_timeout == 1.5);
  CHECK(set->host.empty());
}

TEST_CASE("settings: what is refused", "[settings]") {
  const std::pair<const char*, const char*> bad[] = {{"CHUNK", "many"},
                                                     {"CHUNK", "1e3"},
                                                     {"CHUNK", "4096x"},
                                                     {"CHUNK", "-4096"},
                                                     {"CHUNK", " 4096"},
                                                     {"LANES", "-1"},
                                                     {"LANES", "9"},
                                                     {"STREAMS", "17"},
                                                     {"STREAMS", "1.5"},
                                                     {"INIT_TIMEOUT", "0"},
                                                     {"INIT_TIMEOUT", "x"},
                                                     {"INIT_TIMEOUT", "nan"},
                                                     {"LOG", "loud"},
                                                     {"TRANSPORT", "pigeon"},
                                                     {"TRANSPORT", "shm,"},
                                                     {"TRANSPORT", "shmtcp"},
                                                     {"HOST", "localhost"},
                                                     {"HOST", "1.2.3"},
                                                     {"HOST", "0.0.0.0"},
                                                     {"HOST", "::"},
                                                     {"HOST", "[::1]"},
                                                     {"IFNAME", "^"},
                                                     {"IFNAME", "^="},
                                                     {"IFNAME", ","},
                                                     {"SOCKET_FAMILY", "ipv6"},
                                                     {"PORT_RANGE", "5000"},
                                                     {"PORT_RANGE", "0-5"},
                                                     {"PORT_RANGE", "6-5"},
                                                     {"PORT_RANGE", "1-65536"},
                                                     {"PORT_RANGE", "1-2-3"},
                                                     {"PORT_RANGE", "-"},
                                                     {"TRANSPORT", "^"},
                                                     {"TRANSPORT", "^pigeon"},
                                                     {"TRANSPORT", "tcp,^ucx"}};
  for (const auto& [name, value] : bad) {
    const Variable variable(std::string("PITH_") + name, value);
    const Expected<Settings> settings = settings_from_environment();
    INFO(name << "=" << value);
    REQUIRE_FALSE(settings);
    const std::string text = settings.error().message();
    CHECK(settings.error().code() == Code::invalid_argument);
    CHECK(text.find(std::string("PITH_") + name) != std::string::npos);
    CHECK(text.find(std::string("\"") + value + "\"") != std::string::npos);
    CHECK(text.find("expected") != std::string::npos);
  }
}

TEST_CASE("settings: where to listen", "[settings]") {
  for (const char* text : {"10.0.0.1", "::1", "fe80::1%eth0"}) {
    const Variable host("PITH_HOST", text);
    const Expected<Settings> settings = settings_from_environment();
    REQUIRE(settings);
    CHECK(settings->host == text);
  }
  for (const char* text : {"eth", "eth0,ib", "=eth0", "^docker,lo", "^=eth1", "eth0,"}) {
    const Variable names("PITH_IFNAME", text);
    const Expected<Settings> settings = settings_from_environment();
    REQUIRE(settings);
    CHECK(settings->ifname == text);
  }
  const Variable ports("PITH_PORT_RANGE", "5000-5010");
  const Variable family("PITH_SOCKET_FAMILY", "AF_INET6");
  const Expected<Settings> settings = settings_from_environment();
  REQUIRE(settings);
  CHECK(settings->ports.first == 5000);
  CHECK(settings->ports.last == 5010);
  CHECK(settings->socket_family == "AF_INET6");
}

TEST_CASE("settings: transports are ordered, or forbidden", "[settings]") {
  using Names = std::vector<std::string_view>;
  CHECK(TransportRule("").order() == Names{"local", "shm", "verbs", "ucx", "tcp"});
  CHECK(TransportRule("^ucx,local").order() == Names{"shm", "verbs", "tcp"});
  CHECK(TransportRule("tcp,shm,tcp").order() == Names{"tcp", "shm"});
  CHECK(TransportRule("ucx").names("ucx"));
  CHECK_FALSE(TransportRule("").names("ucx"));
  CHECK_FALSE(TransportRule("^shm").names("ucx"));
  CHECK(TransportRule("^shm").allows("ucx"));
  CHECK_FALSE(TransportRule("shm").allows("ucx"));
}

TEST_CASE("settings: the table is whole", "[settings]") {
  Settings settings;
  for (const SettingInfo& info : setting_table()) {
    INFO(info.name);
    CHECK_FALSE(info.meaning.empty());
    const std::string value = info.value(settings);
    if (!value.empty()) CHECK_FALSE(info.set(settings, value));
    CHECK(info.value(settings) == value);
  }
}

TEST_CASE("settings: what ranks must agree on", "[settings]") {
  Settings ours;
  Settings theirs;
  theirs.host = "10.0.0.1";
  CHECK(difference(agreed_text(theirs), agreed_text(ours)).empty());
  ours.chunk = 65536;
  theirs.chunk = 4096;
  const std::string text = difference(agreed_text(theirs), agreed_text(ours));
  CHECK(text == "PITH_CHUNK=4096 there, PITH_CHUNK=65536 here");
  theirs = ours;
  theirs.tcp.encrypt = true;
  CHECK(difference(agreed_text(theirs), agreed_text(ours)) ==
        "PITH_ENCRYPT=1 there, PITH_ENCRYPT=0 here");
}

TEST_CASE("unique ids survive their bytes", "[settings]") {
  UniqueId id;
  id.address = "[fe80:1234:5678:9abc:def0:1234:5678:9abc]:65535";
  id.secret[0] = std::byte{200};
  id.secret[15] = std::byte{1};
  char bytes[UniqueId::bytes];
  id.store(bytes);
  const Expected<UniqueId> loaded = UniqueId::load(bytes);
  REQUIRE(loaded);
  CHECK(loaded->address == id.address);
  CHECK(loaded->secret == id.secret);
  CHECK(loaded->members == 0);
  bytes[0] ^= 1;
  CHECK_FALSE(UniqueId::load(bytes));
}

TEST_CASE("unique ids for ranks that join tell how many there are", "[settings]") {
  UniqueId id;
  id.address = std::string(100, 'a');
  id.members = 70000;
  char bytes[UniqueId::bytes];
  CHECK(id.store(bytes));  // too long
  id.address.pop_back();
  REQUIRE_FALSE(id.store(bytes));
  const Expected<UniqueId> loaded = UniqueId::load(bytes);
  REQUIRE(loaded);
  CHECK(loaded->address == id.address);
  CHECK(loaded->members == 70000);
  for (std::size_t i = UniqueId::bytes - sizeof(int); i < UniqueId::bytes; ++i) bytes[i] = 0;
  CHECK_FALSE(UniqueId::load(bytes));
  bytes[UniqueId::bytes - 1] = '\xff';  // a negative number
  CHECK_FALSE(UniqueId::load(bytes));
}

TEST_CASE("blobs are split as they were joined", "[settings]") {
  const std::vector<std::string> strings = {"", "a", std::string(1000, '\0'), "end"};
  const std::string joined = join_strings(strings);
  CHECK(split_strings(joined) == strings);
  CHECK(split_strings("").empty());
  for (std::size_t cut = 1; cut < joined.size(); cut += 7) {
    // A torn text gives fewer strings or none, and never reads beyond its end.
    CHECK(split_strings(std::string_view(joined).substr(0, cut)).size() < strings.size());
  }
}

TEST_CASE("the settings of verbs are read, or refused with what was expected") {
  const auto known = pith::parse_verbs_settings("devices=mlx5_0:1+mlx5_1,gid=3,mtu=1024,cache=0");
  REQUIRE(known);
  CHECK(known->devices == "mlx5_0:1,mlx5_1");
  CHECK(known->mtu == 1024);
  CHECK(known->text() == "devices=mlx5_0:1+mlx5_1,gid=3,mtu=1024,cache=0");
  const auto why = [](const char* text) {
    return std::string(pith::parse_verbs_settings(text).error().message());
  };
  CHECK_THAT(why("mtu=1000"), ContainsSubstring("\"mtu=1000\"") &&
                                  ContainsSubstring("256, 512, 1024, 2048 or 4096"));
  CHECK_THAT(why("mtu=8192"), ContainsSubstring("from 256 to 4096"));
  CHECK_THAT(why("gid=256"), ContainsSubstring("from 0 to 255"));
  CHECK_THAT(why("cache=1G"), ContainsSubstring("a number of bytes"));
  CHECK_THAT(why("gid=1,mtu=1024,gid=2"), ContainsSubstring("gid= comes twice"));
  CHECK_THAT(why("device=rxe0"),
             ContainsSubstring("\"device\"") && ContainsSubstring("devices, cache, gid"));
}
