/* Tables that packets write, for v1model: the names of the Portable NIC Architecture (PNA).

   Included after v1model.p4. A table with

       add_on_miss = true;
       pna_idle_timeout = PNA_IdleTimeout_t.AUTO_DELETE;

   and exact keys takes entries from its default action. docs/add-on-miss.md tells the rest. */

#ifndef _ADD_ON_MISS_P4_
#define _ADD_ON_MISS_P4_

// The number of an expire time: of the list in the table's @expire_time_ms(...), or of 10 s, 30 s, 1 min, 2 min, 5 min, 12 h,
// 2 min, 2 min.
typedef bit<8> ExpireTimeProfileId_t;

typedef bit<1> AddEntryErrorStatus_t;
const AddEntryErrorStatus_t ADD_ENTRY_SUCCESS = 0;
const AddEntryErrorStatus_t ADD_ENTRY_NOT_DONE = 1;

// What becomes of an entry that has been idle for its expire time.
enum PNA_IdleTimeout_t { NO_TIMEOUT, NOTIFY_CONTROL, AUTO_DELETE }

// In the default action: adds an entry with the key that was looked up, which runs the named action of the table with these
// values, a structure with a field for each parameter.
extern AddEntryErrorStatus_t add_entry<T>(string action_name,
                                          in T action_params,
                                          in ExpireTimeProfileId_t expire_time_profile_id);
// The same if the condition holds.
extern AddEntryErrorStatus_t add_entry_if<T>(in bool do_add_entry,
                                             string action_name,
                                             in T action_params,
                                             in ExpireTimeProfileId_t expire_time_profile_id);
// In any action of the table: gives the entry that was found another action or other values. Not in PNA.
extern AddEntryErrorStatus_t replace_entry<T>(string action_name,
                                              in T action_params,
                                              in ExpireTimeProfileId_t expire_time_profile_id);

// In actions of entries: the time of the entry begins anew, with another expire time if one is given.
extern void restart_expire_timer();
extern void set_entry_expire_time(in ExpireTimeProfileId_t expire_time_profile_id);
extern void set_entry_expire_time_if(in bool condition, in ExpireTimeProfileId_t expire_time_profile_id);
extern void update_expire_info(in bool update_aging_info,
                               in bool update_expire_time,
                               in ExpireTimeProfileId_t expire_time_profile_id);

#endif
