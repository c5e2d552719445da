/* What is logged where NCCL_DEBUG asks for it, once each, and where it goes. */
#include <string.h>
#include <unistd.h>

#include "client.h"

/* What a call in a group is refused for has its line then, and none when the group ends. */
static void warned_once(struct client* me) {
  char text[16384];
  client_log();
  ncclComm_t comm = client_join(me), other = NULL;
  static float value[4096]; /* as many as PITH_COMPRESS wants here */
  const size_t n = sizeof value / sizeof *value;
  for (int turn = 0; turn < 4; ++turn) {
    const ncclResult_t refused = ncclInvalidArgument;
    OK(ncclGroupStart());
    if (turn > 1) OK(ncclAllReduce(value, value, n, ncclFloat32, ncclSum, comm, NULL));
    FAILS(refused, ncclAllReduce(value, value, n, ncclFloat32, ncclSum, NULL, NULL));
    FAILS(refused, ncclBroadcast(value, value, 0, ncclFloat32, 7, comm, NULL));
    FAILS(refused, ncclCommInitRank(&other, 1, client_id(me, 1), 1));
    FAILS(refused, turn % 2 ? ncclGroupSimulateEnd(NULL) : ncclGroupEnd());
    CHECK(strstr(ncclGetLastError(NULL), "ncclAllReduce: comm is NULL") != NULL);
  }
  FAILS(ncclInvalidUsage, ncclGroupEnd());
  FAILS(ncclInvalidUsage, ncclGroupSimulateEnd(NULL));
  CHECK(strstr(ncclGetLastError(NULL), "ncclGroupSimulateEnd without ncclGroupStart") != NULL);
  OK(ncclCommDestroy(comm));
  client_take_log(me, text, sizeof text);
  CHECK(client_times_in(text, "NCCL WARN ncclAllReduce: comm is NULL") == 4);
  CHECK(client_times_in(text, "NCCL WARN ncclBroadcast: root is 7") == 4);
  CHECK(client_times_in(text, "NCCL WARN ncclCommInitRank: rank is 1") == 4);
  CHECK(client_times_in(text, "NCCL WARN") == 14);
}

/* From here on standard output is a file, which nobody else sees. */
static FILE* divert_output(struct client* me) {
  FILE* const file = tmpfile();
  CHECK(file != NULL && dup2(fileno(file), STDOUT_FILENO) == STDOUT_FILENO);
  return file;
}

static void take_output(FILE* file, char* text, size_t room) {
  rewind(file);
  text[fread(text, 1, room - 1, file)] = '\0';
}

/* What has been logged by WARN and more is in the file; by less, on standard output. */
static void take_words(struct client* me, FILE* output, int in_file, char* text, size_t room) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/pith-client-%d.log", (int)getpid());
  CHECK((access(path, F_OK) == 0) == in_file);
  take_output(output, text, room);
  CHECK(!in_file || text[0] == '\0');
  if (in_file) client_take_log(me, text, room);
}

/* NCCL_DEBUG tells the version at every level, and VERSION nothing else. A word that means nothing
 * there is no level; so is NONE. */
static void told_version(struct client* me) {
  char text[4096], level[16];
  FILE* const output = divert_output(me);
  ncclComm_t comm = NULL;
  snprintf(level, sizeof level, "%s", getenv("NCCL_DEBUG"));
  client_log();
  setenv("NCCL_DEBUG", level, 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  setenv("NCCL_NTHREADS", "4", 1); /* which INFO speaks of */
  OK(ncclCommInitAll(&comm, 1, NULL));
  FAILS(ncclInvalidArgument, ncclCommCount(NULL, NULL)); /* and of this */
  OK(ncclCommDestroy(comm));
  const int warns = strcmp(level, "warn") == 0 || strcmp(level, "INFO") == 0;
  take_words(me, output, warns, text, sizeof text);
  const char* const found = strstr(text, "NCCL version 22809");
  CHECK(found != NULL || text[0] == '\0');
  CHECK((found != NULL) == (warns || strcmp(level, "VERSION") == 0));
  CHECK(found == NULL || strstr(found + 1, "NCCL version") == NULL);
  const int warned = client_times_in(text, "NCCL WARN ncclCommCount: comm is NULL");
  CHECK(warned == warns);
  CHECK(warned || found == NULL || strcmp(strchr(text, '\n'), "\n") == 0);
  CHECK(strcmp(level, "warn") != 0 || (found == text && client_times_in(text, "\n") == 2));
  if (strcmp(level, "INFO") == 0) CHECK(strstr(text, "NCCL INFO without effect") != NULL);
}

int main(void) {
  client_run("warned once", 1, NULL, warned_once);
  const char* compressed[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K", NULL};
  client_run("warned once, compressed", 2, compressed, warned_once);
  const char* levels[] = {"NCCL_DEBUG=NONE", "NCCL_DEBUG=VERSION", "NCCL_DEBUG=warn",
                          "NCCL_DEBUG=INFO", "NCCL_DEBUG=loud"};
  for (size_t i = 0; i < sizeof levels / sizeof *levels; ++i) {
    const char* level[] = {levels[i], NULL};
    client_run(levels[i], 1, level, told_version);
  }
  return 0;
}
