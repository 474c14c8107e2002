-- Lists the pauses.
-- No arguments.
-- Returns: the version of the rules that compare arguments, or ''; then per pause: id, the stored
--   rule, number of tasks that it holds.
-- uses: keys, holds
local answer = {call('HGET', PAUSES, ARGUMENTS) or ''}
for i, rule in ipairs((all_rules())) do
  answer[i + 1] = {rule[1], rule[2], call('ZCARD', HELD_TASKS .. segment(rule[1]))}
end
return answer
