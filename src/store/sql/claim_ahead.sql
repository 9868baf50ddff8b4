-- claim_ahead.sql: the next READY tasks in stretches of shares' lines, unlocked, without those that are overdue or below the floor of one of
-- their subjects; and, not marked as good, the last task of each stretch that was looked at, with how many those were.
-- In the claim transaction, under the gate. Walks live_ready_by_share, at most as many entries of each stretch as "span" says, and stops
-- at "depth" good ones; probes tasks and subjects for one task at a time, which is what OFFSET is for. A subject of a shape that nobody
-- knows counts as good: whoever reads it says so.
SELECT i.ord AS "ord!", h.uid AS "uid!", h.cost AS "cost!", h.rank AS "rank!", h.position AS "position!", h.seen AS "seen?"
FROM unnest($2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]) WITH ORDINALITY
     AS i (share_id, from_rank, from_position, end_rank, end_position, span, depth, ord)
CROSS JOIN LATERAL (
    WITH stretch AS MATERIALIZED (
        SELECT l.uid, l.cost, l.rank, l.position, l.deadline FROM live l
        WHERE l.share_id = i.share_id AND l.state = 'READY'
          AND (l.rank, l.position) >= (i.from_rank, i.from_position) AND (l.rank, l.position) < (i.end_rank, i.end_position)
        ORDER BY l.rank, l.position LIMIT i.span
    )
    (SELECT s.uid, s.cost, s.rank, s.position, NULL::bigint AS seen FROM stretch s
     WHERE s.deadline > (SELECT app_now()) AND NOT EXISTS (
         SELECT FROM tasks t
         CROSS JOIN LATERAL jsonb_array_elements(CASE WHEN jsonb_typeof(t.subjects) = 'array' THEN t.subjects END) AS v (subject)
         WHERE t.uid = s.uid AND EXISTS (
             SELECT FROM subjects f
             WHERE f.queue_id = $1 AND f.subject_id = v.subject ->> 0 AND (f.revoked OR v.subject -> 1 < to_jsonb(f.min_version))
             OFFSET 0)
         OFFSET 0)
     LIMIT i.depth)
    UNION ALL
    (SELECT s.uid, s.cost, s.rank, s.position, (SELECT count(*) FROM stretch) FROM stretch s
     ORDER BY s.rank DESC, s.position DESC LIMIT 1)
) AS h
ORDER BY i.ord, h.seen NULLS FIRST, h.rank, h.position
