// What launchers put into the environment, read without one.
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "catch.hpp"
#include "startup/job_secret.hpp"
#include "startup/launch.hpp"
#include "startup/pmi_wire.hpp"
#include "startup/root_place.hpp"

using namespace pith;

namespace {

const Variables torchrun = {{"RANK", "3"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_PORT", "29500"},
                            {"MASTER_ADDR", "10.1.2.3"},
                            {"LOCAL_WORLD_SIZE", "2"}};
const Variables open_mpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"PMIX_NAMESPACE", "123"},           {"PMIX_RANK", "1"}};
const Variables mpich = {
    {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_FD", "7"}, {"MPI_LOCALNRANKS", "2"}};
const Variables srun = {{"SLURM_PROCID", "5"},
                        {"SLURM_NTASKS", "6"},
                        {"SLURM_LOCALID", "2"},
                        {"SLURM_JOB_ID", "1234"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_NNODES", "2"},
                        {"SLURM_NODELIST", "node[07-08]"}};

Variables with(Variables variables,
               std::initializer_list<std::pair<const char*, const char*>> more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const char* name) {
  variables.erase(name);
  return variables;
}

Launch read(const Variables& variables, const Settings& settings = {}) {
  const Expected<Launch> launch = read_launch(variables, settings);
  INFO(launch.error().message());
  REQUIRE(launch);
  return *launch;
}

void refuses(const Variables& variables, const Settings& settings, Code code,
             std::initializer_list<const char*> words) {
  const Expected<Launch> launch = read_launch(variables, settings);
  REQUIRE_FALSE(launch);
  CHECK(launch.error().code() == code);
  const std::string text = launch.error().message();
  for (const char* word : words) {
    INFO(text << " / " << word);
    CHECK(text.find(word) != std::string::npos);
  }
}

Settings by_hand(int rank, int size, std::string root) {
  Settings settings;
  settings.rank = rank;
  settings.size = size;
  settings.root = std::move(root);
  return settings;
}

// A file that goes with it.
class File {
 public:
  explicit File(const std::string& text) : path_("/tmp/pith_secret_" + std::to_string(getpid())) {
    std::ofstream(path_) << text;
  }
  ~File() { unlink(path_.c_str()); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("launch: every launcher's variables", "[launch]") {
  const Launch torch = read(torchrun);
  CHECK(torch.launcher == "torchrun");
  CHECK((torch.rank == 3 && torch.size == 8 && torch.local_rank == 1));
  CHECK((torch.way == Launch::Way::address && torch.host == "10.1.2.3" && !torch.one_host));
  CHECK(read(with(torchrun, {{"LOCAL_WORLD_SIZE", "8"}})).one_host);

  const Launch ompi = read(open_mpi);
  CHECK((ompi.way == Launch::Way::pmix && ompi.rank == 1 && ompi.size == 4 && ompi.one_host));
  CHECK_FALSE(read(with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})).one_host);

  const Launch hydra = read(mpich);
  CHECK((hydra.way == Launch::Way::pmi && hydra.rank == 2 && hydra.size == 3));
  CHECK((hydra.pmi_fd == 7 && !hydra.one_host));

  const Launch slurm = read(srun);
  CHECK((slurm.way == Launch::Way::address && slurm.rank == 5 && slurm.size == 6));
  CHECK((slurm.host == "node07" && slurm.local_rank == 2 && !slurm.one_host));
  CHECK(read(with(srun, {{"SLURM_STEP_NUM_TASKS", "9"}})).size == 9);
  CHECK(read(with(srun, {{"SLURM_STEP_NUM_NODES", "1"}})).host == "127.0.0.1");
  CHECK(read(with(without(srun, "SLURM_STEP_ID"), {{"SLURM_STEPID", "2"}})).rank == 5);

  const Launch pmix = read(with(srun, {{"PMIX_RANK", "4"}, {"PMIX_NAMESPACE", "slurm.pmix.1.0"}}));
  CHECK((pmix.way == Launch::Way::pmix && pmix.rank == 4 && pmix.size == 6));

  const Launch hand = read({}, by_hand(1, 2, "[fe80::1]:5000"));
  CHECK((hand.rank == 1 && hand.size == 2 && hand.host == "fe80::1" && hand.port == 5000));
}

TEST_CASE("launch: who goes first", "[launch]") {
  // Each is started by the one before.
  Variables all = srun;
  CHECK(read(all).launcher == "srun");
  all.insert(mpich.begin(), mpich.end());
  CHECK(read(all).launcher == "MPICH's mpirun");
  all.insert(torchrun.begin(), torchrun.end());
  all["TORCHELASTIC_RUN_ID"] = "none";
  CHECK(read(all).launcher == "torchrun");
  CHECK(read(all, by_hand(0, 2, "h:1")).launcher == "PITH_RANK");
  // Two that say the same.
  Variables same = with(torchrun, {{"RANK", "1"}, {"WORLD_SIZE", "4"}});
  same.insert(open_mpi.begin(), open_mpi.end());
  CHECK(read(same).launcher == "torchrun");
}

TEST_CASE("launch: launchers that disagree are named, and one can be chosen", "[launch]") {
  // As an operator of clusters leaves them in a pod.
  Variables pod = with(torchrun, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  const auto in_pod = [&](const Variables& more) {
    Variables all = pod;
    all.insert(more.begin(), more.end());
    return all;
  };
  refuses(in_pod(open_mpi), {}, Code::invalid_usage,
          {"torchrun says rank 0 of 1 (RANK=0, WORLD_SIZE=1)",
           "Open MPI's mpirun says rank 1 of 4 (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4)",
           "PITH_LAUNCHER=torchrun or PITH_LAUNCHER=openmpi"});
  refuses(in_pod(mpich), {}, Code::invalid_usage,
          {"PMI_RANK=2, PMI_SIZE=3", "PITH_LAUNCHER=mpich"});
  refuses(in_pod(srun), {}, Code::invalid_usage,
          {"SLURM_PROCID=5, SLURM_NTASKS=6", "PITH_LAUNCHER=srun"});
  Variables two = open_mpi;
  two.insert(mpich.begin(), mpich.end());
  refuses(two, {}, Code::invalid_usage, {"Open MPI's mpirun says", "MPICH's mpirun says"});
  Settings settings;
  settings.launcher = "openmpi";
  CHECK(read(in_pod(open_mpi), settings).size == 4);
  settings.launcher = "torchrun";
  CHECK(read(in_pod(open_mpi), settings).size == 1);
  CHECK(read(in_pod(open_mpi), by_hand(0, 2, "h:1")).size == 2);
  settings.launcher = "mpich";
  refuses(in_pod(open_mpi), settings, Code::invalid_usage,
          {"PITH_LAUNCHER is \"mpich\"", "MPICH's mpirun (PMI_RANK, PMI_SIZE, PMI_FD)"});
}

TEST_CASE("launch: variables of a shell that Slurm has started are no launcher's", "[launch]") {
  // A batch script's or salloc's, in which somebody starts ranks by other means.
  const Variables batch = with(srun, {{"SLURM_STEP_ID", "4294967291"}, {"SLURM_PROCID", "0"}});
  refuses(batch, {}, Code::invalid_usage, {"no launcher has said"});
  Variables inside = batch;
  inside.insert(torchrun.begin(), torchrun.end());
  CHECK(read(inside).launcher == "torchrun");
  // srun --pty bash, and what it has left behind.
  Variables shell = with(srun, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  shell.insert(torchrun.begin(), torchrun.end());
  CHECK(read(shell).launcher == "torchrun");
  shell.insert(mpich.begin(), mpich.end());
  shell = without(shell, "RANK");
  CHECK(read(shell).launcher == "MPICH's mpirun");
}

TEST_CASE("launch: nobody's rank, or one that was missed", "[launch]") {
  const auto nobody = [](const Variables& variables, const Settings& settings = {}) {
    const Expected<std::optional<Launch>> found = find_launch(variables, settings);
    return found && !*found;
  };
  CHECK(nobody({}));
  CHECK(nobody({{"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}}));
  const Variables allocation = without(without(srun, "SLURM_PROCID"), "SLURM_STEP_ID");
  CHECK(nobody(allocation));  // salloc's shell
  CHECK(nobody(with(allocation, {{"SLURM_PROCID", "0"}})));
  CHECK(nobody(with(srun, {{"SLURM_STEP_ID", "4294967291"}})));

  for (const char* name : {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "PMI_RANK", "PMI_SIZE", "PMIX_RANK"}) {
    INFO(name);
    CHECK_FALSE(nobody({{name, "0"}}));
    refuses({{name, "0"}}, {}, Code::invalid_usage, {"no launcher has said"});
  }
  CHECK_FALSE(nobody(without(srun, "SLURM_NTASKS")));
  Settings settings;
  settings.launcher = "srun";
  CHECK_FALSE(nobody({}, settings));
  CHECK_FALSE(nobody(open_mpi, settings));
  CHECK_FALSE(nobody({}, by_hand(0, 2, "")));
  CHECK_FALSE(nobody(open_mpi));
}

TEST_CASE("launch: ports keep clear of the launcher's and of outgoing calls", "[launch]") {
  for (int port = 1; port <= 65535; port += 7) {
    const Launch launch = read(with(torchrun, {{"MASTER_PORT", std::to_string(port).c_str()}}));
    if (launch.port == port || launch.port < 10'000 || launch.port >= 30'000) FAIL(port);
  }
  Settings settings;
  settings.port = 4000;
  CHECK(read(torchrun, settings).port == 4000);
  CHECK(read(srun, settings).port == 4000);
  CHECK(read(srun).port != read(with(srun, {{"SLURM_STEP_ID", "1"}})).port);
  // Another job, or the same one after a restart, is told apart.
  CHECK(read(torchrun).job != read(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).job);
  CHECK(read(srun).job != read(with(srun, {{"SLURM_JOB_ID", "1235"}})).job);
}

TEST_CASE("launch: what is wrong or missing is named", "[launch]") {
  const auto code = Code::invalid_argument;
  refuses(with(torchrun, {{"RANK", "8"}}), {}, code, {"RANK is \"8\"", "from 0 to 7"});
  refuses(with(torchrun, {{"RANK", "-1"}}), {}, code, {"RANK is \"-1\""});
  refuses(with(torchrun, {{"WORLD_SIZE", "many"}}), {}, code, {"WORLD_SIZE is \"many\""});
  refuses(with(torchrun, {{"MASTER_PORT", "70000"}}), {}, code, {"MASTER_PORT is \"70000\""});
  refuses(with(open_mpi, {{"OMPI_COMM_WORLD_SIZE", "0"}}), {}, code, {"OMPI_COMM_WORLD_SIZE"});
  refuses(with(mpich, {{"PMI_FD", "x"}}), {}, code, {"PMI_FD is \"x\""});
  refuses(with(srun, {{"SLURM_NODELIST", "[oops"}}), {}, code, {"[oops", "expected"});
  refuses({}, by_hand(2, 2, "h:1"), code, {"PITH_RANK is 2", "0 to 1"});
  refuses({}, by_hand(0, 2, ""), Code::invalid_usage, {"not set: PITH_ROOT"});
  refuses({}, by_hand(-1, 0, "h:1"), Code::invalid_usage, {"not set: PITH_RANK PITH_SIZE"});
  refuses({}, {}, Code::invalid_usage,
          {"PITH_RANK, PITH_SIZE, PITH_ROOT", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_FD",
           "SLURM_PROCID"});
  refuses(without(torchrun, "MASTER_PORT"), {}, Code::invalid_usage,
          {"MASTER_PORT: not set MASTER_PORT"});
}

TEST_CASE("launch: the first host of a list", "[launch]") {
  CHECK(first_host("node1") == "node1");
  CHECK(first_host("a-b.c,d") == "a-b.c");
  CHECK(first_host("node[003-005,9],other") == "node003");
  CHECK(first_host("node[7,9]-ib,other[1-2]") == "node7-ib");
  for (const char* bad : {"", "node[", "node[]", "node[x-y]", "n[1-2", "a b", "n[1]m[2]", ",a"}) {
    INFO(bad);
    CHECK(first_host(bad).empty());
  }
}

TEST_CASE("launch: what counts as loopback", "[launch]") {
  for (const char* host : {"127.0.0.1", "127.3.2.1", "::1", "localhost"}) CHECK(is_loopback(host));
  for (const char* host : {"10.0.0.1", "127.example.org", "node1", "", "::"}) {
    CHECK_FALSE(is_loopback(host));
  }
}

TEST_CASE("launch: where the root listens", "[launch]") {
  Launch launch;
  launch.host = "192.0.2.1";
  launch.port = 5000;
  launch.rank = 1;
  Settings settings;
  settings.ifname = "lo";
  Expected<RootPlace> place = find_root(launch, settings);
  REQUIRE(place);
  CHECK((place->address == "192.0.2.1:5000" && !place->loopback));
  // An address that is none of ours: rank 0 listens everywhere.
  launch.rank = 0;
  place = find_root(launch, settings);
  REQUIRE(place);
  const bool everywhere = place->listen == "0.0.0.0" || place->listen == "::";
  CHECK((everywhere && place->address == "127.0.0.1:5000" && !place->loopback));
  launch.one_host = true;
  place = find_root(launch, settings);
  REQUIRE(place);
  CHECK((place->listen == "127.0.0.1" && place->loopback));
  launch.host = "::1";
  place = find_root(launch, settings);
  REQUIRE(place);
  CHECK(place->address == "[::1]:5000");
}

TEST_CASE("secrets: from a text or a file", "[launch]") {
  Settings settings;
  CHECK(secret_text(settings)->empty());
  settings.secret = "open sesame";
  CHECK(*secret_text(settings) == "open sesame");
  const File file("from a file\n");
  settings.secret_file = file.path();
  CHECK_FALSE(secret_text(settings));
  settings.secret.clear();
  CHECK(*secret_text(settings) == "from a file");
  for (const std::string& path : {std::string("/nowhere/at/all"), std::string("/tmp")}) {
    settings.secret_file = path;
    const Expected<std::string> text = secret_text(settings);
    REQUIRE_FALSE(text);
    CHECK(std::string(text.error().message()).find(path) != std::string::npos);
  }
  const File empty("\n");
  settings.secret_file = empty.path();
  CHECK_FALSE(secret_text(settings));
}

TEST_CASE("secrets: differ by text and by job", "[launch]") {
  const Secret one = derive_secret("a", "job 1");
  CHECK(one == derive_secret("a", "job 1"));
  CHECK(one != derive_secret("b", "job 1"));
  CHECK(one != derive_secret("a", "job 2"));
}

TEST_CASE("pmi: fields of a line", "[launch]") {
  CHECK(pmi_field("cmd=get_result rc=0 value=abc", "value") == "abc");
  CHECK(pmi_field("cmd=get_result rc=0 value=abc", "rc") == "0");
  CHECK(pmi_field("cmd=maxes kvsname_max=256", "kvsname").empty());
  CHECK(pmi_field("", "cmd").empty());
}
