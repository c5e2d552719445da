// NCCL's variables as defaults of Pith's settings.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "catch.hpp"
#include "nccl/conf_file.hpp"
#include "nccl/environment.hpp"
#include "nccl/rdma_devices.hpp"
#include "settings/settings.hpp"
#include "settings/settings_origin.hpp"
#include "startup/listen_host.hpp"
#include "tests/model/temporary_folder.hpp"

using namespace pith;

namespace {

constexpr const char* names[] = {"NCCL_SOCKET_IFNAME",
                                 "NCCL_SOCKET_FAMILY",
                                 "NCCL_SHM_DISABLE",
                                 "NCCL_ALGO",
                                 "NCCL_PROTO",
                                 "NCCL_COMM_ID",
                                 "NCCL_COMM_BLOCKING",
                                 "NCCL_P2P_DISABLE",
                                 "PITH_IFNAME",
                                 "PITH_TIMEOUT",
                                 "PITH_INIT_TIMEOUT",
                                 "PITH_JOIN_TIMEOUT",
                                 "NCCL_OOB_NET_IFNAME",
                                 "NCCL_BUFFSIZE",
                                 "NCCL_NET",
                                 "NCCL_NET_PLUGIN",
                                 "NCCL_P2P_LEVEL",
                                 "NCCL_MAX_CTAS",
                                 "NCCL_SOCKET_NTHREADS",
                                 "NCCL_NSOCKS_PERTHREAD",
                                 "NCCL_SOCKET_RETRY_CNT",
                                 "NCCL_SOCKET_RETRY_SLEEP_MSEC",
                                 "NCCL_CONF_FILE",
                                 "NCCL_TOPO_FILE",
                                 "NCCL_IB_HCA",
                                 "NCCL_IB_DISABLE",
                                 "NCCL_IB_TIMEOUT",
                                 "NCCL_IB_PCI_RELAXED_ORDERING",
                                 "NCCL_NET_GDR_LEVEL",
                                 "NCCL_HOSTID",
                                 "PITH_HOST_ID",
                                 "NCCL_IB_TC"};

// Variables for the length of a test.
class Environment {
 public:
  explicit Environment(std::initializer_list<std::pair<const char*, const char*>> values) {
    for (const char* name : names) unsetenv(name);
    for (const auto& [name, value] : values) setenv(name, value, 1);
  }
  ~Environment() {
    for (const char* name : names) unsetenv(name);
    set_defaults({});
  }
};

Settings settings_now() {
  REQUIRE(nccl::read_environment());
  const auto settings = settings_from_environment();
  REQUIRE(settings);
  return *settings;
}

Code code_now() { return nccl::read_environment().error().code(); }

}  // namespace

TEST_CASE("no timeout, unless it is asked for", "[nccl]") {
  const Environment none({});
  CHECK(settings_now().timeout == 0);
  setenv("PITH_TIMEOUT", "7", 1);
  CHECK(settings_now().timeout == 7);
}

TEST_CASE("NCCL's variables are defaults of ours", "[nccl]") {
  const Environment variables({{"NCCL_SOCKET_IFNAME", "=lo"},
                               {"NCCL_SOCKET_FAMILY", "AF_INET6"},
                               {"NCCL_SHM_DISABLE", "1"},
                               {"NCCL_P2P_DISABLE", "1"},
                               {"NCCL_COMM_BLOCKING", "0"}});
  const Settings settings = settings_now();
  CHECK(settings.ifname == "=lo");
  CHECK(settings.socket_family == "AF_INET6");
  CHECK(settings.transport == "^shm");
  CHECK_FALSE(settings.cuda_ipc);
  CHECK(nccl::read_environment()->blocking == 0);
  setenv("PITH_IFNAME", "eth", 1);
  CHECK(settings_now().ifname == "eth");
}

TEST_CASE("NCCL's variables that name resources", "[nccl]") {
  const Environment variables({{"NCCL_OOB_NET_IFNAME", "eth"},
                               {"NCCL_BUFFSIZE", "4194304"},
                               {"NCCL_NET", "Socket"},
                               {"NCCL_SHM_DISABLE", "1"}});
  CHECK(settings_now().ifname == "eth");
  CHECK(settings_now().chunk == 4194304 / 8);
  CHECK(settings_now().transport == "^shm,verbs,ucx");
  setenv("NCCL_SOCKET_IFNAME", "ib", 1);
  CHECK(settings_now().ifname == "ib");
  setenv("NCCL_BUFFSIZE", "much", 1);
  CHECK(settings_now().chunk == 0);
}

TEST_CASE("an interface that is not there is named by the variable that wants it", "[nccl]") {
  const Environment variables({{"NCCL_OOB_NET_IFNAME", "=nowhere7"}});
  const auto refusal = [] {
    const Expected<std::string> host = root_host(settings_now());
    REQUIRE_FALSE(host);
    return std::string(host.error().message());
  };
  CHECK(refusal().find("NCCL_OOB_NET_IFNAME is \"=nowhere7\"") != std::string::npos);
  setenv("NCCL_SOCKET_IFNAME", "=nowhere8", 1);
  CHECK(refusal().find("NCCL_SOCKET_IFNAME is \"=nowhere8\"") != std::string::npos);
  setenv("PITH_IFNAME", "=nowhere9", 1);
  CHECK(refusal().find("PITH_IFNAME is \"=nowhere9\"") != std::string::npos);
}

TEST_CASE("NCCL's variables that name connections", "[nccl]") {
  const Settings by_itself;
  Environment variables({{"NCCL_SOCKET_NTHREADS", "2"}, {"NCCL_NSOCKS_PERTHREAD", "3"}});
  CHECK(settings_now().tcp.streams == 6);
  setenv("NCCL_NSOCKS_PERTHREAD", "16", 1);  // as many as Pith takes
  CHECK(settings_now().tcp.streams == 16);
  unsetenv("NCCL_SOCKET_NTHREADS");
  setenv("NCCL_NSOCKS_PERTHREAD", "8", 1);
  CHECK(settings_now().tcp.streams == 8);
  setenv("NCCL_NSOCKS_PERTHREAD", "some", 1);
  CHECK(settings_now().tcp.streams == by_itself.tcp.streams);
  setenv("NCCL_NET", "IB", 1);
  CHECK(settings_now().transport == "^tcp");
}

TEST_CASE("ranks that have not come are waited for, a root that is not there is not", "[nccl]") {
  const double by_itself = Settings().init_timeout;
  Environment variables({{"NCCL_SOCKET_RETRY_CNT", "3"}});
  CHECK(settings_now().wait_for_ranks_s() == 86400);
  CHECK(settings_now().init_timeout == by_itself);  // what has come is connected by then
  setenv("NCCL_COMM_ID", "127.0.0.1:5000", 1);
  CHECK(settings_now().wait_for_ranks_s() == by_itself);  // never less than by itself
  setenv("NCCL_SOCKET_RETRY_CNT", "99", 1);
  CHECK(settings_now().wait_for_ranks_s() == 495);
  setenv("NCCL_SOCKET_RETRY_SLEEP_MSEC", "200", 1);
  CHECK(settings_now().wait_for_ranks_s() == 990);
  setenv("NCCL_SOCKET_RETRY_CNT", "2000000000", 1);
  CHECK(settings_now().wait_for_ranks_s() == 86400);
  setenv("PITH_INIT_TIMEOUT", "7", 1);
  CHECK(settings_now().wait_for_ranks_s() == 7);
  setenv("PITH_JOIN_TIMEOUT", "70", 1);
  CHECK(settings_now().wait_for_ranks_s() == 70);
  CHECK(settings_now().init_timeout == 7);
}

TEST_CASE("NCCL's variables of InfiniBand are UCX's", "[nccl]") {
  const auto devices = [](const char* list) {
    const Environment variables({{"NCCL_IB_HCA", list}});
    REQUIRE(nccl::read_environment());
    const Variables found = defaults_of_library("UCX_");
    const bool told = !nccl::variables_without_effect().empty();
    CHECK(told == !found.contains("NET_DEVICES"));
    return told ? "" : found.at("NET_DEVICES");
  };
  CHECK(devices("=nic9_0,nic9_3:2") == "nic9_0:1,nic9_3:2");
  CHECK(devices("nic9") == "");  // no device here begins so
  const Environment variables({{"NCCL_IB_TC", "106"}, {"NCCL_IB_DISABLE", "1"}});
  CHECK(settings_now().transport == "^verbs,ucx");
  CHECK(defaults_of_library("UCX_") == Variables{{"IB_TRAFFIC_CLASS", "106"}});
  const Environment key({{"NCCL_IB_PKEY", "3"}});
  CHECK(settings_now().verbs.pkey == 3);
}

TEST_CASE("NCCL's names of devices may be beginnings", "[nccl]") {
  const test::TemporaryFolder folder;
  for (const char* port :
       {"mlx5_1/ports/1", "mlx5_1/ports/2", "mlx5_10/ports/1", "mlx4_0/ports/1"}) {
    std::filesystem::create_directories(std::filesystem::path(folder.path()) / port);
  }
  const auto left = [&](const char* list) { return nccl::rdma_devices(list, folder.path()); };
  CHECK(left("mlx5") == "mlx5_1:1,mlx5_1:2,mlx5_10:1");
  CHECK(left("mlx5_1:1") == "mlx5_1:1,mlx5_10:1");
  CHECK(left("=mlx5_1") == "mlx5_1:1,mlx5_1:2");
  CHECK(left("=mlx5_1:2,mlx4_0") == "mlx4_0:1,mlx5_1:2");
  CHECK(left("^mlx5") == "mlx4_0:1");
  CHECK(left("^=mlx5_1:1,mlx4_0:1") == "mlx5_1:2,mlx5_10:1");
  CHECK(left("mlx5_2") == "");
  CHECK(left("=mlx5_2") == "mlx5_2:1");  // the transports say that it is missing
  CHECK(left("^mlx") == "");
  for (const char* nothing : {"", "^", "=", ",", ":1"}) CHECK(left(nothing) == "");
}

TEST_CASE("how long InfiniBand waits, and what it may do", "[nccl]") {
  const auto ucx = [](const char* name, const char* value) {
    const Environment variables({{name, value}});
    REQUIRE(nccl::read_environment());
    return defaults_of_library("UCX_");
  };
  CHECK(ucx("NCCL_IB_TIMEOUT", "14") == Variables{{"RC_TIMEOUT", "67109us"}});
  CHECK(ucx("NCCL_IB_TIMEOUT", "31") == Variables{{"RC_TIMEOUT", "8796093022us"}});
  for (const char* wrong : {"0", "32", "-1", "long"}) CHECK(ucx("NCCL_IB_TIMEOUT", wrong).empty());
  CHECK(ucx("NCCL_IB_PCI_RELAXED_ORDERING", "0") == Variables{{"IB_PCI_RELAXED_ORDERING", "off"}});
  CHECK(ucx("NCCL_IB_PCI_RELAXED_ORDERING", "1") == Variables{{"IB_PCI_RELAXED_ORDERING", "on"}});
  CHECK(ucx("NCCL_IB_PCI_RELAXED_ORDERING", "2").empty());
}

TEST_CASE("levels of distance count where they allow nothing", "[nccl]") {
  for (const char* never : {"LOC", "0"}) {
    const Environment variables({{"NCCL_P2P_LEVEL", never}, {"NCCL_NET_GDR_LEVEL", never}});
    CHECK_FALSE(settings_now().cuda_ipc);
    CHECK(settings_now().gpudirect == "0");
    CHECK(nccl::variables_without_effect().empty());
  }
  const Environment variables({{"NCCL_P2P_LEVEL", "NVL"}, {"NCCL_NET_GDR_LEVEL", "SYS"}});
  CHECK(settings_now().cuda_ipc);
  CHECK(settings_now().gpudirect == "auto");
  CHECK(nccl::variables_without_effect().size() == 2);
}

TEST_CASE("NCCL_HOSTID", "[nccl]") {
  const Environment variables({{"NCCL_HOSTID", "rank3"}});
  CHECK(settings_now().host_id == "rank3");
  CHECK(nccl::variables_without_effect().empty());
  setenv("PITH_HOST_ID", "here", 1);
  CHECK(settings_now().host_id == "here");
}

TEST_CASE("the lines of NCCL's files", "[nccl]") {
  const Variables found = nccl::variables_of(
      "# NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\r\n\nno setting\nNCCL_ALGO=Tree\nNCCL_NET=\n"
      "NCCL_HOSTID=a=b");
  CHECK(found == Variables{{"NCCL_ALGO", "Ring"}, {"NCCL_NET", ""}, {"NCCL_HOSTID", "a=b"}});
  CHECK(nccl::variables_of("").empty());
}

TEST_CASE("NCCL_CONF_FILE", "[nccl]") {
  const std::string path = "/tmp/pith-test-nccl-" + std::to_string(getpid()) + ".conf";
  std::ofstream(path) << "NCCL_SOCKET_IFNAME=eth\nNCCL_ALGO=ring\nNCCL_TOPO_FILE=x\n"
                         "NCCL_BUFFSIZE=4194304\nPITH_CHUNK=4096\nPITH_LANES=2\n";
  Environment variables({{"NCCL_CONF_FILE", path.c_str()}, {"NCCL_ALGO", "tree"}});
  CHECK(settings_now().ifname == "eth");
  CHECK(settings_now().algo == "allreduce:double_tree");  // the environment goes first
  CHECK(settings_now().chunk == 4096);                    // our own name, before NCCL's
  CHECK(settings_now().lanes == 2);
  CHECK(nccl::variables_without_effect() == std::vector<std::string>{"NCCL_TOPO_FILE"});
  setenv("PITH_IFNAME", "ib", 1);
  CHECK(settings_now().ifname == "ib");
  std::filesystem::remove(path);
  unsetenv("PITH_IFNAME");
  CHECK(settings_now().ifname.empty());
  CHECK(settings_now().lanes == Settings().lanes);
}

TEST_CASE("NCCL_ALGO", "[nccl]") {
  const auto chosen = [](const char* text) {
    const Environment variables({{"NCCL_ALGO", text}});
    return settings_now().algo;
  };
  CHECK(chosen("Ring") == "allreduce:ring");
  CHECK(chosen("tree") == "allreduce:double_tree");
  CHECK(chosen("^Tree") == "allreduce:ring");
  CHECK(chosen("Ring,Tree").empty());
  CHECK(chosen("NVLS").empty());
  CHECK(chosen("allreduce:^ring;broadcast:ring") == "allreduce:double_tree");
  CHECK(chosen("allgather:ring").empty());
  CHECK(chosen("Ring,;") == "allreduce:ring");
  for (const char* text : {"Ring,Treee", "everything:ring", "allreduce:ring;tree"}) {
    const Environment wrong({{"NCCL_ALGO", text}});
    CHECK(code_now() == Code::invalid_usage);
  }
  const Environment variables({{"NCCL_ALGO", ""}});
  setenv("NCCL_ALGO", "ring", 1);
  setenv("NCCL_PROTO", "LL256", 1);
  CHECK(code_now() == Code::invalid_usage);
  setenv("NCCL_PROTO", "^LL128", 1);
  CHECK(code_now() == Code::success);
}

TEST_CASE("what changes nothing is told", "[nccl]") {
  const auto told = [](std::initializer_list<std::pair<const char*, const char*>> values) {
    const Environment variables(values);
    return nccl::variables_without_effect();
  };
  using Names = std::vector<std::string>;
  CHECK(told({}).empty());
  for (const char* name :
       {"NCCL_NET_PLUGIN", "NCCL_P2P_LEVEL", "NCCL_MAX_CTAS", "NCCL_TOPO_FILE", "NCCL_PROTO"}) {
    CHECK(told({{name, "LL128"}}) == Names{name});
  }
  CHECK(told({{"NCCL_NET_PLUGIN", "none"}}).empty());
  CHECK(told({{"NCCL_ALGO", "NVLS"}}) == Names{"NCCL_ALGO"});
  CHECK(told({{"NCCL_ALGO", "Ring"}}).empty());
  CHECK(told({{"NCCL_NET", "AWS Libfabric"}}) == Names{"NCCL_NET"});
  CHECK(told({{"NCCL_NET", "IB"}}).empty());
  CHECK(told({{"NCCL_NET", "Socket"}, {"NCCL_SHM_DISABLE", "1"}}).empty());
}

TEST_CASE("NCCL_COMM_ID", "[nccl]") {
  for (const char* wrong : {"host", ":5000", "host:", "host:0", "host:65536", "host:50x"}) {
    const Environment variables({{"NCCL_COMM_ID", wrong}});
    CHECK(code_now() == Code::invalid_argument);
  }
  const Environment variables({{"NCCL_COMM_ID", "[::1]:5000"}});
  CHECK(nccl::read_environment()->comm_id == "[::1]:5000");
}
