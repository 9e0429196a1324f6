// Traces of allocations as lines.
#include "traces/allocation_lines.hpp"

#include <gtest/gtest.h>

namespace cuvmm::traces {
namespace {

using std::chrono::microseconds;

AllocationTrace read(const std::string& text) {
  return read_allocation_lines(text, "trace");
}

// The message, behind the trace's name and the line's number.
std::string refusal_of(const std::string& text, std::size_t line) {
  try {
    static_cast<void>(read(text));
  } catch (const TraceError& error) {
    EXPECT_EQ(error.line(), line) << error.what();
    const std::string begin = line == 0 ? "'trace': " : "'trace', line " + std::to_string(line) + ": ";
    EXPECT_EQ(std::string(error.what()).substr(0, begin.size()), begin) << error.what();
    return std::string(error.what()).substr(begin.size());
  }
  return "nothing is refused";
}

// "+0:4096" for an allocation, "-0" for its end.
std::string in_short(const AllocationTrace& trace) {
  std::string text;
  for (const AllocationEvent& each : trace.events) {
    text += text.empty() ? "" : " ";
    text += each.frees ? "-" + std::to_string(each.allocation)
                       : "+" + std::to_string(each.allocation) + ":" +
                             std::to_string(trace.allocations[each.allocation].bytes);
  }
  return text;
}

const std::string history = "seq,time_us,action,addr_offset,size,stream\n";

TEST(AllocationLines, ReadPyTorchsHistory) {
  const AllocationTrace trace =
      read(history +
           "0,10,segment_alloc,0,2097152,0\n1,11,alloc,0,1024,0\r\n\n2,12,alloc,1024,512,5\n"
           "3,13,free_requested,0,1024,0\n4,14,free_completed,0,1024,0\n5,15,alloc,0,256,0\n");
  EXPECT_EQ(in_short(trace), "+0:1024 +1:512 -0 +2:256");
  EXPECT_EQ(trace.streams, 2U);
  EXPECT_EQ(trace.allocations[1].stream, 1U);
  EXPECT_EQ(trace.events[2].time, microseconds(14));
  EXPECT_TRUE(trace.remarks.empty());
  EXPECT_EQ(most_live(trace).bytes, 1536U);
  EXPECT_EQ(most_live(trace).event, 1U);
}

TEST(AllocationLines, PassOverWhatWasAllocatedBeforeTheTrace) {
  const AllocationTrace trace =
      read(history + "0,0,free_completed,4096,512,0\n1,0,alloc,4096,512,0\n2,0,alloc,8192,0,0\n");
  EXPECT_EQ(in_short(trace), "+0:512");
  EXPECT_EQ(trace.remarks, (std::vector<std::string>{"frees of what was not allocated in the trace passed over: 1",
                                                     "allocations of no bytes passed over: 1"}));
}

TEST(AllocationLines, NameTheLineOfPyTorchsHistoryThatIsBroken) {
  const std::string good = history + "0,0,alloc,0,512,0\n";
  EXPECT_EQ(refusal_of(good + "1,0,allot,512,512,0\n", 3),
            "action is 'allot'; PyTorch records alloc, free_requested, free_completed and what becomes of "
            "segments.");
  EXPECT_EQ(refusal_of(good + "1,0,alloc,512,-1,0\n", 3), "size is '-1'; it has to be a number of bytes.");
  EXPECT_EQ(refusal_of(good + "1,0,alloc,x,512,0\n", 3), "addr_offset is 'x'; it has to be a number of bytes.");
  EXPECT_EQ(refusal_of(good + "1,0,alloc,512,512,\n", 3), "stream is ''; it has to be a number of a stream.");
  EXPECT_EQ(refusal_of(good + "1,now,alloc,512,512,0\n", 3),
            "time_us is 'now'; it has to be a number of microseconds.");
  EXPECT_EQ(refusal_of(good + "1,0,alloc,512,512\n", 3), "it has 5 columns, where the first line names 6.");
  EXPECT_EQ(refusal_of(good + "1,0,alloc,0,512,0\n", 3),
            "the address 0x0 is allocated already, and was not freed since.");
  EXPECT_EQ(refusal_of(good + "1,0,alloc,512,70368744177665,0\n", 3),
            "70368744177665 bytes are more than the 70368744177664 that an allocation may have.");
  EXPECT_EQ(in_short(read(good + "1,0,alloc,512,70368744177664,0\n")), "+0:512 +1:70368744177664");
}

TEST(AllocationLines, RefuseMoreStreamsThanThereMayBe) {
  std::string text = history;
  for (std::uint32_t i = 0; i < most_streams; ++i)
    text += "0,0,alloc," + std::to_string(i) + ",1," + std::to_string(i) + "\n";
  EXPECT_EQ(read(text).streams, most_streams);
  EXPECT_EQ(refusal_of(text + "0,0,alloc,5000,1,5000\n", most_streams + 2),
            "it is of one more stream than the 1024 that a trace may have.");
}

const std::string log = "Thread,Time,Action,Pointer,Size,Stream\n";

TEST(AllocationLines, ReadRmmsLog) {
  const AllocationTrace trace =
      read(log +
           "1,23:59:59.5,allocate,0x7f00,1024,0x0\n1,23:59:59:750000,allocate,0x8000,512,0x2\n"
           "1,00:00:00.0,free,0x7f00,1024,0x0\n1,00:00:01,deallocate,8000,512,2\n"
           "1,00:00:02,allocate failure,0x0,99,0x0\n1,1634567890.12,free,0x1,0,0x0\n");
  EXPECT_EQ(in_short(trace), "+0:1024 +1:512 -0 -1");
  EXPECT_EQ(trace.streams, 2U);
  EXPECT_EQ(trace.events[2].time - trace.events[0].time, microseconds(500'000));
  EXPECT_EQ(trace.remarks, (std::vector<std::string>{"allocations that failed when they were recorded passed over: 1",
                                                     "frees of no bytes passed over: 1"}));
}

TEST(AllocationLines, NameTheLineOfRmmsLogThatIsBroken) {
  const std::string good = log + "1,23:59:59.5,allocate,0x7f00,1024,0x0\n";
  EXPECT_EQ(refusal_of(good + "1,23:59:59.5,reallocate,0x8000,1,0x0\n", 3),
            "Action is 'reallocate'; RMM logs allocate, free (or deallocate) and allocate failure.");
  EXPECT_EQ(refusal_of(good + "1,23:59:59.5,free,pointer,1,0x0\n", 3),
            "Pointer is 'pointer'; it has to be a hexadecimal number.");
  EXPECT_EQ(refusal_of(good + "1,23:59:59.5,free,0x7f00,many,0x0\n", 3),
            "Size is 'many'; it has to be a number of bytes.");
  EXPECT_EQ(refusal_of(good + "1,23:59:59.5,free,0x7f00,1024,s\n", 3),
            "Stream is 's'; it has to be a hexadecimal number.");
  EXPECT_EQ(in_short(read(good + "1,23:59:59.5,free,0x7f00,1024,0x0\n")), "+0:1024 -0");
}

const std::string intervals = "id,lower,upper,size\n";

TEST(AllocationLines, EndIntervalsBeforeOthersBegin) {
  const AllocationTrace trace = read(intervals + "b,3,9,2\na,0,3,4\nc,0,9,8\n");
  EXPECT_EQ(in_short(trace), "+0:4 +1:8 -0 +2:2 -2 -1");
  EXPECT_EQ(most_live(trace).bytes, 12U);
}

TEST(AllocationLines, NameTheIntervalThatIsBroken) {
  EXPECT_EQ(refusal_of(intervals + "a,3,3,1\n", 2), "upper is '3'; it has to be more than lower, which is 3.");
  EXPECT_EQ(refusal_of(intervals + "a,3,4,0\n", 2),
            "size is '0'; it has to be a number of bytes from 1 to 70368744177664.");
  EXPECT_EQ(refusal_of(intervals + "a,-1,4,1\n", 2), "lower is '-1'; it has to be a number of a moment.");
  EXPECT_EQ(refusal_of(intervals + "a,3,9223372036854775808,1\n", 2),
            "upper is '9223372036854775808'; it is too late a moment.");
  EXPECT_EQ(in_short(read(intervals + "a,3,4,1\n")), "+0:1 -0");
}

TEST(AllocationLines, RefuseATraceWithoutAllocations) {
  for (const std::string& none : {std::string(), history, log, intervals})
    EXPECT_EQ(refusal_of(none, 0), "it has no allocations.");
  EXPECT_EQ(refusal_of("a,b\n", 1), "the columns are 'a,b', which are those of no trace of allocations.");
}

TEST(AllocationLines, RefuseAColumnThatIsNamedTwice) {
  EXPECT_EQ(refusal_of("lower,upper,size,size\n0,1,2,3\n", 1),
            "the column 'size' is named twice: which one counts is not known.");
  EXPECT_EQ(read_allocation_lines("lower,upper,size,other\n0,1,2,3\n", "trace").allocations.size(), 1U);
}

TEST(AllocationLines, AreToldByTheirColumns) {
  EXPECT_TRUE(names_allocation_columns("stream,size,addr_offset,action"));
  EXPECT_TRUE(names_allocation_columns("Action,Pointer,Size,Stream\r"));
  EXPECT_TRUE(names_allocation_columns("lower,upper,size"));
  EXPECT_FALSE(names_allocation_columns("lower,upper"));
  EXPECT_FALSE(names_allocation_columns("TIMESTAMP,ContextTokens,GeneratedTokens"));
}

TEST(AllocationTraces, AreScaledWithinBounds) {
  AllocationTrace trace = read(intervals + "a,0,1,1024\n");
  scale_sizes(trace, 2048);
  EXPECT_EQ(trace.allocations[0].bytes, 2097152U);
  EXPECT_THROW(scale_sizes(trace, std::uint64_t{1} << 32), Broken);
  EXPECT_EQ(trace.allocations[0].bytes, 2097152U);
}

}  // namespace
}  // namespace cuvmm::traces
